package engine

// App is the tenant: it owns workers, jobs and workflows.
type App struct {
	ID        int64
	Name      string // unique
	Set       string // stream set in the broker: empty for its own, else a shared one
	CreatedAt int64  // epoch ms
}

// Worker is a process that runs Processors for one App, as last heard.
type Worker struct {
	App         int64
	Name        string // unique in the app
	Incarnation uint64 // random at each start
	Version     string
	Host        string
	Pools       []string
	Labels      map[string]string
	Processors  []string
	Slots       int
	Maintenance bool  // gets nothing new
	FirstSeen   int64 // epoch ms
	LastSeen    int64 // epoch ms, by the server's clock
}

// Container is a versioned bundle of Processors that workers load while running.
type Container struct {
	ID        int64
	App       int64
	Name      string
	Version   string
	Digest    string // sha256, hex
	Enabled   bool
	CreatedAt int64
}
