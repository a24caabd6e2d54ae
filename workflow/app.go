package workflow

import "go.yaml.in/yaml/v4"

// KindApp is the kind of an app's document.
const KindApp = "App"

// AppDefinition is an app as its author wrote it.
type AppDefinition struct {
	// Kind is always KindApp.
	Kind string `json:"kind"`
	// Name identifies the app: [a-z0-9][a-z0-9_-]{0,62}.
	Name string `json:"name"`
	// Title is free text for people, at most 255 characters.
	Title string `json:"title,omitempty"`
}

func (d *decoder) appDefinition(n *yaml.Node) *AppDefinition {
	var a AppDefinition
	place := d.fill(&a, n, "the app")
	d.name(place("name"), "name", a.Name)
	d.title(place("title"), a.Title)
	return &a
}
