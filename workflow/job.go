package workflow

import "go.yaml.in/yaml/v4"

// KindJob is the kind of a job's document.
const KindJob = "Job"

// JobDefinition is a job as its author wrote it.
type JobDefinition struct {
	// Kind is always KindJob.
	Kind string `json:"kind"`
	// Name identifies the job in its app: [a-z0-9][a-z0-9_-]{0,62}.
	Name string `json:"name"`
	// App is the app whose workers run it; same form as Name.
	App string `json:"app"`
	// Title is free text for people, at most 255 characters.
	Title string `json:"title,omitempty"`
	// Disabled jobs neither fire nor can be triggered.
	Disabled bool `json:"disabled,omitempty"`
	// Schedule says when it fires by itself.
	Schedule Schedule `json:"schedule,omitzero"`
	// Spec is how it is run; its fields stand beside the others.
	Spec
}

func (d *decoder) job(n *yaml.Node) *JobDefinition {
	var j JobDefinition
	place := d.fill(&j, n, "the job")
	d.name(place("name"), "name", j.Name)
	d.appName(place("app"), &j.App)
	d.title(place("title"), j.Title)
	for _, p := range j.Spec.problems(true) {
		d.fail(place(p.field), "%s", p.message)
	}
	return &j
}
