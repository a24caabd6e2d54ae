package access

import (
	"slices"
	"strings"
)

// Permission is one kind of thing that a caller may do. Every route of the API declares one.
type Permission string

// The permissions that need no role.
const (
	Public     Permission = "public"      // anybody, without credentials: login, health, static files
	SelfRead   Permission = "self.read"   // who one is, one's sessions and tokens
	SelfManage Permission = "self.manage" // one's password, second factor, sessions and tokens; not with a token
)

// The permissions on what belongs to an app.
const (
	AppsRead            Permission = "apps.read"
	AppsWrite           Permission = "apps.write" // settings of the app
	MembersRead         Permission = "members.read"
	MembersManage       Permission = "members.manage" // who holds which role in the app
	WorkersRead         Permission = "workers.read"
	WorkersDrain        Permission = "workers.drain"       // drain, and maintenance
	WorkersCredentials  Permission = "workers.credentials" // what a worker of the app logs in with
	JobsRead            Permission = "jobs.read"
	JobsWrite           Permission = "jobs.write" // and any run whose definition the caller brings along
	WorkflowsRead       Permission = "workflows.read"
	WorkflowsWrite      Permission = "workflows.write" // and any run whose definition the caller brings along
	SchedulesRead       Permission = "schedules.read"  // with the ledger and the preview
	SchedulesPause      Permission = "schedules.pause"
	CalendarsRead       Permission = "calendars.read"
	CalendarsWrite      Permission = "calendars.write"
	InstancesRead       Permission = "instances.read" // with attempts, sub-tasks, nodes, live events
	InstancesTrigger    Permission = "instances.trigger"
	InstancesStop       Permission = "instances.stop"  // and pause and resume
	InstancesRetry      Permission = "instances.retry" // and rerun, and mark success
	WorkflowsTrigger    Permission = "workflows.trigger"
	WorkflowsStop       Permission = "workflows.stop"
	WorkflowsRetry      Permission = "workflows.retry"
	SignalsSend         Permission = "signals.send"
	ApprovalsDecide     Permission = "approvals.decide" // the node may name roles besides
	LogsRead            Permission = "logs.read"
	ContainersRead      Permission = "containers.read"
	ContainersWrite     Permission = "containers.write" // code that workers run
	AlarmsRead          Permission = "alarms.read"
	AlarmsWrite         Permission = "alarms.write"
	SecretsRead         Permission = "secrets.read" // names and dates; no permission shows a value
	SecretsWrite        Permission = "secrets.write"
	AppAuditRead        Permission = "audit.read-app" // the records that name the app
	DefinitionsRollback Permission = "definitions.rollback"
)

// The permissions over the whole system.
const (
	AppsCreate      Permission = "apps.create"
	AppsDelete      Permission = "apps.delete"
	UsersRead       Permission = "users.read"
	UsersManage     Permission = "users.manage"  // make and disable users, reset what they log in with
	RolesManage     Permission = "roles.manage"  // any role of anybody
	TokensManage    Permission = "tokens.manage" // see and revoke anybody's, make those of services
	AuditRead       Permission = "audit.read"    // and verify
	ServersRead     Permission = "servers.read"
	ServersManage   Permission = "servers.manage"
	SettingsRead    Permission = "settings.read"
	SettingsWrite   Permission = "settings.write"
	KeysRotate      Permission = "keys.rotate"
	DeadLettersRead Permission = "deadletters.read"
)

// of says what a permission is about.
type of uint8

const (
	ofApp of = iota + 1
	ofSystem
	ofSelf
	ofAnybody
)

// rule is a line of the table of permissions.
type rule struct {
	perm Permission
	of   of
	// inPerson: only in a session, never with a token, as it gives rights away.
	inPerson bool
}

// rules are all permissions. What is not here does not exist, and is refused.
var rules = []rule{
	{perm: Public, of: ofAnybody},
	{perm: SelfRead, of: ofSelf},
	{perm: SelfManage, of: ofSelf, inPerson: true},

	{perm: AppsRead, of: ofApp},
	{perm: AppsWrite, of: ofApp},
	{perm: MembersRead, of: ofApp},
	{perm: MembersManage, of: ofApp, inPerson: true},
	{perm: WorkersRead, of: ofApp},
	{perm: WorkersDrain, of: ofApp},
	{perm: WorkersCredentials, of: ofApp},
	{perm: JobsRead, of: ofApp},
	{perm: JobsWrite, of: ofApp},
	{perm: WorkflowsRead, of: ofApp},
	{perm: WorkflowsWrite, of: ofApp},
	{perm: DefinitionsRollback, of: ofApp},
	{perm: SchedulesRead, of: ofApp},
	{perm: SchedulesPause, of: ofApp},
	{perm: CalendarsRead, of: ofApp},
	{perm: CalendarsWrite, of: ofApp},
	{perm: InstancesRead, of: ofApp},
	{perm: InstancesTrigger, of: ofApp},
	{perm: InstancesStop, of: ofApp},
	{perm: InstancesRetry, of: ofApp},
	{perm: WorkflowsTrigger, of: ofApp},
	{perm: WorkflowsStop, of: ofApp},
	{perm: WorkflowsRetry, of: ofApp},
	{perm: SignalsSend, of: ofApp},
	{perm: ApprovalsDecide, of: ofApp},
	{perm: LogsRead, of: ofApp},
	{perm: ContainersRead, of: ofApp},
	{perm: ContainersWrite, of: ofApp},
	{perm: AlarmsRead, of: ofApp},
	{perm: AlarmsWrite, of: ofApp},
	{perm: SecretsRead, of: ofApp},
	{perm: SecretsWrite, of: ofApp},
	{perm: AppAuditRead, of: ofApp},

	{perm: AppsCreate, of: ofSystem},
	{perm: AppsDelete, of: ofSystem},
	{perm: UsersRead, of: ofSystem},
	{perm: UsersManage, of: ofSystem, inPerson: true},
	{perm: RolesManage, of: ofSystem, inPerson: true},
	{perm: TokensManage, of: ofSystem, inPerson: true},
	{perm: AuditRead, of: ofSystem},
	{perm: ServersRead, of: ofSystem},
	{perm: ServersManage, of: ofSystem},
	{perm: SettingsRead, of: ofSystem},
	{perm: SettingsWrite, of: ofSystem},
	{perm: KeysRotate, of: ofSystem},
	{perm: DeadLettersRead, of: ofSystem},
}

var ruleOf = func() map[Permission]rule {
	out := make(map[Permission]rule, len(rules))
	for _, r := range rules {
		out[r.perm] = r
	}
	return out
}()

// Permissions lists all permissions, in the order of the table.
func Permissions() []Permission {
	out := make([]Permission, len(rules))
	for i, r := range rules {
		out[i] = r.perm
	}
	return out
}

// Known tells whether there is such a permission. A server does not start with a route that
// declares another.
func (p Permission) Known() bool { return ruleOf[p].of != 0 }

// OfApp tells whether the permission is about what belongs to an app, so that Allow wants the
// app's name.
func (p Permission) OfApp() bool { return ruleOf[p].of == ofApp }

// in tells whether the permission is in a list as a token has it: "*" is every one, "jobs.*"
// all of jobs.
func (p Permission) in(list []string) bool {
	noun, _, ok := strings.Cut(string(p), ".")
	return slices.Contains(list, string(p)) || slices.Contains(list, "*") || ok && slices.Contains(list, noun+".*")
}
