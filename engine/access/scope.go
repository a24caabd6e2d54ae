package access

import (
	"fmt"
	"strings"

	"github.com/fanjet/fanjet/engine"
)

// EveryApp is the scope of all apps, those to come too.
const EveryApp = "*"

// CheckScope refuses what is no scope of apps: "*", the name of an app, or a namespace, which
// is the beginning of names up to a - or _ and a star, as "billing-*".
func CheckScope(scope string) error {
	if scope == EveryApp {
		return nil
	}
	stem, namespace := strings.CutSuffix(scope, "*")
	if engine.ValidName(stem) && (!namespace || ends(stem)) {
		return nil
	}
	return fmt.Errorf("scope %q: want an app's name, a namespace as billing-*, or *: %w", engine.CutText(scope, engine.MaxScope), engine.ErrInvalid)
}

func ends(stem string) bool { return strings.HasSuffix(stem, "-") || strings.HasSuffix(stem, "_") }

// InScope tells whether the app of that name is in the scope.
func InScope(scope, app string) bool {
	if !engine.ValidName(app) {
		return false
	}
	stem, open := strings.CutSuffix(scope, "*")
	switch {
	case !open:
		return scope == app
	case stem == "":
		return true
	}
	return ends(stem) && len(app) > len(stem) && strings.HasPrefix(app, stem)
}

// within tells whether every app of the inner scope is in the outer one.
func within(inner, outer string) bool {
	stem, open := strings.CutSuffix(inner, "*")
	if !open {
		return InScope(outer, inner)
	}
	out, openOut := strings.CutSuffix(outer, "*")
	return openOut && strings.HasPrefix(stem, out)
}

// ScopesOf lists the scopes that an app of that name is in, so that its members can be looked
// up.
func ScopesOf(app string) []string {
	if !engine.ValidName(app) {
		return nil
	}
	out := []string{EveryApp, app}
	for i := 1; i < len(app); i++ {
		if ends(app[:i]) {
			out = append(out, app[:i]+"*")
		}
	}
	return out
}
