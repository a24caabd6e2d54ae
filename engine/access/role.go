package access

import (
	"fmt"
	"slices"

	"github.com/fanjet/fanjet/engine"
)

// Policy is what the owner of the system has decided about who may what.
type Policy struct {
	// SeparateDuties keeps the three duties of GB/T 22239-2019 (MLPS 2.0, level 3, 8.1.5.1 to
	// 8.1.5.3) with three people: system-admins run the system and neither make users nor read
	// the audit log; security-admins make users and give roles; auditors read the audit log
	// and do nothing else. Nobody holds two of these roles, security-admins and auditors hold
	// no other role at all, and nobody changes roles of their own. Default off: a system-admin
	// may do everything.
	SeparateDuties bool
	// SecondFactor lets users who log in with a password do nothing but set up a second factor,
	// until they have (the same, 8.1.4.1 d). Default off.
	SecondFactor bool
}

// roleOrder lists all roles, lesser ones first.
var roleOrder = []engine.Role{
	engine.RoleViewer, engine.RoleOperator, engine.RoleEditor, engine.RoleAppAdmin,
	engine.RoleSystemAdmin, engine.RoleSecurityAdmin, engine.RoleAuditor,
}

var (
	viewer = []Permission{
		AppsRead, WorkersRead, JobsRead, WorkflowsRead, SchedulesRead, CalendarsRead, InstancesRead, LogsRead, ContainersRead, AlarmsRead,
	}
	operator = append(slices.Clip(viewer),
		WorkersDrain, SchedulesPause, InstancesTrigger, InstancesStop, InstancesRetry, WorkflowsTrigger, WorkflowsStop, WorkflowsRetry, SignalsSend, ApprovalsDecide)
	editor = append(slices.Clip(operator),
		JobsWrite, WorkflowsWrite, DefinitionsRollback, CalendarsWrite, AlarmsWrite, SecretsRead)
	appAdmin = append(slices.Clip(editor),
		AppsWrite, MembersRead, MembersManage, WorkersCredentials, ContainersWrite, SecretsWrite, AppAuditRead)

	systemAdmin = []Permission{
		AppsRead, AppsWrite, WorkersRead, WorkersDrain,
		AppsCreate, AppsDelete, ServersRead, ServersManage, SettingsRead, SettingsWrite, KeysRotate, DeadLettersRead,
	}
	securityAdmin = []Permission{AppsRead, MembersRead, MembersManage, UsersRead, UsersManage, RolesManage, TokensManage, SettingsRead}
	auditor       = []Permission{AuditRead, AppAuditRead}
)

// granted are the permissions of a role. A role over the whole system has those on apps in
// every app.
func (pol Policy) granted(role engine.Role) []Permission {
	switch role {
	case engine.RoleViewer:
		return viewer
	case engine.RoleOperator:
		return operator
	case engine.RoleEditor:
		return editor
	case engine.RoleAppAdmin:
		return appAdmin
	case engine.RoleSystemAdmin:
		if pol.SeparateDuties {
			return systemAdmin
		}
		return everything
	case engine.RoleSecurityAdmin:
		return securityAdmin
	case engine.RoleAuditor:
		return auditor
	}
	return nil
}

var everything = func() (out []Permission) {
	for _, r := range rules {
		if r.of == ofApp || r.of == ofSystem {
			out = append(out, r.perm)
		}
	}
	return out
}()

// Grants tells whether the role has the permission.
func (pol Policy) Grants(role engine.Role, perm Permission) bool {
	return slices.Contains(pol.granted(role), perm)
}

// global tells whether the role is held over the whole system.
func global(role engine.Role) bool {
	return role == engine.RoleSystemAdmin || role == engine.RoleSecurityAdmin || role == engine.RoleAuditor
}

// Roles lists all roles; those over the whole system come last.
func Roles() []engine.Role { return slices.Clone(roleOrder) }

// CheckBindings refuses a set of roles that one user may not hold.
func (pol Policy) CheckBindings(all []engine.RoleBinding) error {
	if len(all) > engine.MaxBindings {
		return fmt.Errorf("%d roles for one user, at most %d: use a namespace of apps as the scope: %w", len(all), engine.MaxBindings, engine.ErrTooLarge)
	}
	for i, b := range all {
		switch {
		case !slices.Contains(roleOrder, b.Role):
			return fmt.Errorf("role %q: there are %v: %w", engine.CutText(string(b.Role), engine.MaxName), roleOrder, engine.ErrInvalid)
		case global(b.Role) && b.Scope != "":
			return fmt.Errorf("role %s is held over the whole system, not in scope %q: %w", b.Role, b.Scope, engine.ErrInvalid)
		case !global(b.Role):
			if err := CheckScope(b.Scope); err != nil {
				return fmt.Errorf("role %s: %w", b.Role, err)
			}
		}
		same := func(o engine.RoleBinding) bool { return o.Role == b.Role && o.Scope == b.Scope }
		if slices.ContainsFunc(all[:i], same) {
			return fmt.Errorf("role %s in scope %q is there twice: %w", b.Role, b.Scope, engine.ErrInvalid)
		}
	}
	if a, b, ok := pol.clash(all); ok {
		return fmt.Errorf("separation of duties: nobody holds both %s and %s: %w", a, b, engine.ErrForbidden)
	}
	return nil
}

// clash finds two roles that nobody may hold together.
func (pol Policy) clash(all []engine.RoleBinding) (a, b engine.Role, found bool) {
	if !pol.SeparateDuties {
		return "", "", false
	}
	for _, x := range all {
		for _, y := range all {
			alone := x.Role == engine.RoleSecurityAdmin || x.Role == engine.RoleAuditor
			if x.Role != y.Role && (alone || global(x.Role) && global(y.Role)) {
				return x.Role, y.Role, true
			}
		}
	}
	return "", "", false
}

// CheckHolders is an engine.RoleGuard: it refuses to leave the system without anybody who
// could give roles, or, where duties are separated, one of the three duties without a holder.
func (pol Policy) CheckHolders(holders map[engine.Role]int) error {
	if !pol.SeparateDuties {
		if holders[engine.RoleSystemAdmin] == 0 {
			return fmt.Errorf("this would leave no %s who is not disabled: make somebody else one first: %w", engine.RoleSystemAdmin, engine.ErrConflict)
		}
		return nil
	}
	if holders[engine.RoleSecurityAdmin] == 0 {
		return fmt.Errorf("this would leave no %s who is not disabled: make somebody else one first: %w", engine.RoleSecurityAdmin, engine.ErrConflict)
	}
	return nil
}

// CheckSeparation tells whether the duties can be separated, with the roles of all users as
// they are: it names the first user who holds too many, or the duty that nobody would have.
func CheckSeparation(byUser map[int64][]engine.RoleBinding) error {
	separate := Policy{SeparateDuties: true}
	holders := map[engine.Role]int{}
	users := make([]int64, 0, len(byUser))
	for user := range byUser {
		users = append(users, user)
	}
	slices.Sort(users)
	for _, user := range users {
		if err := separate.CheckBindings(byUser[user]); err != nil {
			return fmt.Errorf("user %d: %w", user, err)
		}
		for _, b := range byUser[user] {
			holders[b.Role]++
		}
	}
	for _, role := range []engine.Role{engine.RoleSystemAdmin, engine.RoleSecurityAdmin, engine.RoleAuditor} {
		if holders[role] == 0 {
			return fmt.Errorf("separation of duties: nobody would be %s: give somebody the role first: %w", role, engine.ErrConflict)
		}
	}
	return nil
}
