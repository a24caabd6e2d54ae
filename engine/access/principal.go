package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fanjet/fanjet/engine"
)

// Principal is who asks. The zero value is somebody without credentials.
type Principal struct {
	User       int64
	Name       string
	Credential int64 // the session or token it came with
	roles      []engine.RoleBinding
	token      *engine.Token
	mustChange bool // nothing before another password
	oneFactor  bool // logged in with a password alone
}

// OfSession is the user of a session that CheckSession let pass, with the roles of now.
func OfSession(s *engine.Session, u *engine.User, roles []engine.RoleBinding) Principal {
	return Principal{
		User: u.ID, Name: u.Name, Credential: s.ID, roles: roles, mustChange: u.MustChange,
		oneFactor: u.Issuer == "" && len(u.TOTP) == 0,
	}
}

// OfToken is the user of a token that CheckToken let pass, with the roles of now. It may what
// the user may, as far as the token goes.
func OfToken(t *engine.Token, u *engine.User, roles []engine.RoleBinding) Principal {
	return Principal{User: u.ID, Name: u.Name, Credential: t.ID, roles: roles, token: t}
}

// Known tells whether the caller has shown who it is.
func (p *Principal) Known() bool { return p.User != 0 }

// Actor fills in who did it.
func (p *Principal) Actor(r *engine.AuditRecord) {
	r.ActorKind, r.Actor, r.Credential, r.ActorName = engine.ActorUser, p.User, p.Credential, p.Name
	switch {
	case !p.Known():
		r.ActorKind = engine.ActorNobody
	case p.token != nil:
		r.ActorKind = engine.ActorToken
	}
}

// Allow tells whether the caller may do something, in the app of that name if the permission
// is one on apps, else app is empty. What no line of the table allows is refused:
// ErrUnauthenticated if the caller has not shown who it is, engine.ErrNotFound if it may not
// even know that there is such an app, engine.ErrForbidden, with who may, otherwise.
func (pol Policy) Allow(p Principal, perm Permission, app string) error {
	r := ruleOf[perm]
	switch {
	case r.of == ofAnybody:
		return nil
	case !p.Known():
		return fmt.Errorf("%s: log in, or send a token: %w", perm, ErrUnauthenticated)
	case r.of == 0:
		return fmt.Errorf("there is no permission %q: %w", string(perm), engine.ErrForbidden)
	case r.of == ofApp && !engine.ValidName(app):
		return fmt.Errorf("app %q: %w", engine.CutText(app, engine.MaxName), engine.ErrNotFound)
	case r.of != ofApp && app != "":
		return fmt.Errorf("%s is not about an app: %w", perm, engine.ErrForbidden)
	}
	if r.of == ofApp && perm != AppsRead && !pol.anything(p, app) {
		return fmt.Errorf("app %s: %w", app, engine.ErrNotFound)
	}
	if err := pol.ready(&p, r); err != nil {
		return err
	}
	if !pol.holds(&p, r, app) {
		if perm == AppsRead {
			return fmt.Errorf("app %s: %w", app, engine.ErrNotFound)
		}
		return pol.refuse(&p, perm, app)
	}
	if t := p.token; t != nil {
		inApp := r.of != ofApp || slices.ContainsFunc(t.Apps, func(scope string) bool { return InScope(scope, app) })
		switch {
		case r.inPerson:
			return fmt.Errorf("%s gives rights away and is not done with a token: log in: %w", perm, engine.ErrForbidden)
		case !perm.in(t.Permissions):
			return fmt.Errorf("the token has no permission %s: %w", perm, engine.ErrForbidden)
		case !inApp:
			return fmt.Errorf("app %s: %w", app, engine.ErrNotFound)
		}
	}
	return nil
}

// ready refuses what must wait for another password or a second factor.
func (pol Policy) ready(p *Principal, r rule) error {
	switch {
	case r.of == ofSelf || p.token != nil:
		return nil
	case p.mustChange:
		return fmt.Errorf("change your password first: %w", engine.ErrForbidden)
	case pol.SecondFactor && p.oneFactor:
		return fmt.Errorf("set up a second factor first: %w", engine.ErrForbidden)
	}
	return nil
}

// holds tells whether one of the user's roles has the permission.
func (pol Policy) holds(p *Principal, r rule, app string) bool {
	if r.of == ofSelf {
		return true
	}
	return slices.ContainsFunc(pol.roles(p), func(b engine.RoleBinding) bool {
		return pol.Grants(b.Role, r.perm) && (global(b.Role) || r.of == ofApp && InScope(b.Scope, app))
	})
}

// anything tells whether the caller may do anything at all in the app, and so know of it.
func (pol Policy) anything(p Principal, app string) bool {
	if t := p.token; t != nil && !slices.ContainsFunc(t.Apps, func(scope string) bool { return InScope(scope, app) }) {
		return false
	}
	return slices.ContainsFunc(pol.roles(&p), func(b engine.RoleBinding) bool {
		if !global(b.Role) {
			return slices.Contains(roleOrder, b.Role) && InScope(b.Scope, app)
		}
		return slices.ContainsFunc(pol.granted(b.Role), Permission.OfApp)
	})
}

// roles are those that count: none, where the user holds some that nobody may hold together.
func (pol Policy) roles(p *Principal) []engine.RoleBinding {
	if _, _, clash := pol.clash(p.roles); clash {
		return nil
	}
	return p.roles
}

func (pol Policy) refuse(p *Principal, perm Permission, app string) error {
	if a, b, clash := pol.clash(p.roles); clash {
		return fmt.Errorf("%s: you hold both %s and %s, which the separation of duties forbids: ask a security-admin to take one away: %w", perm, a, b, engine.ErrForbidden)
	}
	var who []string
	for _, role := range roleOrder {
		if pol.Grants(role, perm) {
			who = append(who, string(role))
		}
	}
	where := ""
	if app != "" {
		where = " in app " + app
	}
	return fmt.Errorf("%s%s: roles that may: %s: %w", perm, where, strings.Join(who, ", "), engine.ErrForbidden)
}

// Scopes lists the scopes of apps in which the caller has the permission, "*" alone if it has
// it in all of them, so that a list over apps holds only what the caller may see: keep what is
// in one of them by InScope.
func (pol Policy) Scopes(p Principal, perm Permission) []string {
	r := ruleOf[perm]
	if !p.Known() || r.of != ofApp || pol.ready(&p, r) != nil {
		return nil
	}
	var own []string
	for _, b := range pol.roles(&p) {
		switch {
		case !pol.Grants(b.Role, perm):
		case global(b.Role):
			own = append(own, EveryApp)
		default:
			own = append(own, b.Scope)
		}
	}
	if t := p.token; t != nil {
		if r.inPerson || !perm.in(t.Permissions) {
			return nil
		}
		own = meet(own, t.Apps)
	}
	return widest(own)
}

// meet lists the scopes of what is in one of both lists.
func meet(a, b []string) (out []string) {
	for _, x := range a {
		for _, y := range b {
			if within(x, y) {
				out = append(out, x)
			} else if within(y, x) {
				out = append(out, y)
			}
		}
	}
	return out
}

// widest drops what lies in another scope of the list, and sorts it.
func widest(scopes []string) (out []string) {
	slices.Sort(scopes)
	scopes = slices.Compact(scopes)
	for _, s := range scopes {
		if !slices.ContainsFunc(scopes, func(o string) bool { return o != s && within(s, o) }) {
			out = append(out, s)
		}
	}
	return out
}

// MayDecide tells whether the caller may decide an approval of the app that asks for one of
// the roles, or for none in particular. A greater role of the app will do for a lesser one.
func (pol Policy) MayDecide(p Principal, asked []engine.Role, app string) error {
	if err := pol.Allow(p, ApprovalsDecide, app); err != nil || len(asked) == 0 {
		return err
	}
	for _, role := range asked {
		least := slices.Index(roleOrder, role)
		holds := least >= 0 && slices.ContainsFunc(pol.roles(&p), func(b engine.RoleBinding) bool {
			if global(role) || global(b.Role) {
				return b.Role == role || b.Role == engine.RoleSystemAdmin && !pol.SeparateDuties
			}
			return slices.Index(roleOrder, b.Role) >= least && InScope(b.Scope, app)
		})
		if holds {
			return nil
		}
	}
	return fmt.Errorf("this approval is decided by %v: %w", asked, engine.ErrForbidden)
}

// MayBind tells whether the caller may bring the roles of a user from old to fresh. Who may
// manage all roles may give any; who manages the members of apps may give and take roles in
// those apps alone, as wide as the own rights go.
func (pol Policy) MayBind(p Principal, user int64, old, fresh []engine.RoleBinding) error {
	if err := pol.CheckBindings(fresh); err != nil {
		return err
	}
	if pol.SeparateDuties && user == p.User {
		return fmt.Errorf("separation of duties: nobody changes roles of their own: %w", engine.ErrForbidden)
	}
	all := pol.Allow(p, RolesManage, "")
	if all == nil {
		return nil
	}
	mine := pol.Scopes(p, MembersManage)
	for _, b := range changed(old, fresh) {
		if global(b.Role) || !slices.ContainsFunc(mine, func(s string) bool { return within(b.Scope, s) }) {
			return fmt.Errorf("role %s in scope %q: %w", b.Role, b.Scope, all)
		}
	}
	return nil
}

// changed lists what is in one of both sets alone.
func changed(old, fresh []engine.RoleBinding) (out []engine.RoleBinding) {
	lacks := func(set []engine.RoleBinding, b engine.RoleBinding) bool {
		return !slices.ContainsFunc(set, func(o engine.RoleBinding) bool { return o.Role == b.Role && o.Scope == b.Scope })
	}
	for _, b := range old {
		if lacks(fresh, b) {
			out = append(out, b)
		}
	}
	for _, b := range fresh {
		if lacks(old, b) {
			out = append(out, b)
		}
	}
	return out
}
