package httpapi

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// browsed is a route as the page shows it.
type browsed struct {
	Method, Path, ID, Title, About, Permission string
	Params                                     []browsedParam
	Body                                       []browsedParam
}

type browsedParam struct {
	Name, In, Type, About string
	Required              bool
}

type browsedTag struct {
	Name   string
	Routes []browsed
}

// browsePage lists the routes for people. It has no script, and nothing from elsewhere.
var browsePage = template.Must(template.New("browse").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Fanjet API</title>
<meta name="viewport" content="width=device-width">
<style nonce="{{.Nonce}}">
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2733;background:#fff}
h2{margin:2rem 0 .5rem;text-transform:capitalize}
details{border:1px solid #d5dce4;border-radius:6px;margin:.3rem 0;padding:.3rem .7rem}
summary{cursor:pointer}
code{font:13px/1.5 ui-monospace,monospace}
.m{display:inline-block;width:4.2rem;font-weight:600}
.p{color:#5b6b7b}
table{border-collapse:collapse;margin:.4rem 0}td,th{text-align:left;padding:.15rem .9rem .15rem 0;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#dbe3ea;background:#12181f}details{border-color:#33404d}.p{color:#93a3b3}}
</style></head><body>
<h1>Fanjet API</h1>
<p>Times are epoch milliseconds, ids are strings. Send a token as <code>Authorization: Bearer fj_…</code>, or log in and keep the cookie.
The <a href="/api/v1/openapi.json">OpenAPI document</a> has all of it for programs.</p>
{{range .Tags}}<h2>{{.Name}}</h2>
{{range .Routes}}<details id="{{.ID}}"><summary><code><span class="m">{{.Method}}</span>{{.Path}}</code> <span class="p">{{.Title}}</span></summary>
{{if .About}}<p>{{.About}}</p>{{end}}<p class="p">Permission: <code>{{.Permission}}</code></p>
{{if .Params}}<table><tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>{{range .Params}}<tr><td><code>{{.Name}}</code>{{if .Required}} *{{end}}</td><td>{{.In}}</td><td>{{.Type}}</td><td>{{.About}}</td></tr>{{end}}</table>{{end}}
{{if .Body}}<table><tr><th>Body</th><th>Type</th><th></th></tr>{{range .Body}}<tr><td><code>{{.Name}}</code>{{if .Required}} *{{end}}</td><td>{{.Type}}</td><td>{{.About}}</td></tr>{{end}}</table>{{end}}
</details>
{{end}}{{end}}</body></html>
`))

func (a *API) browse(w http.ResponseWriter, _ *http.Request) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, since Go 1.24
	nonce := base64.RawURLEncoding.EncodeToString(b[:])
	var page bytes.Buffer
	if err := browsePage.Execute(&page, map[string]any{"Nonce": nonce, "Tags": a.tags}); err != nil {
		a.cfg.Log.Error("the page of the API's routes failed", "err", err)
		http.Error(w, "something went wrong here; the server's log says what", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+nonce+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes()) // the caller is gone, or gets it
}

// browsedTags are the routes by tag, as they are shown.
func (a *API) browsedTags() []browsedTag {
	var out []browsedTag
	doc := a.huma.OpenAPI()
	for _, o := range a.Operations() {
		item := doc.Paths[o.Path]
		op := map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post, http.MethodDelete: item.Delete, http.MethodPatch: item.Patch,
		}[o.Method]
		r := browsed{Method: o.Method, Path: o.Path, ID: o.ID, Title: op.Summary, About: op.Description, Permission: string(o.Permission)}
		for _, p := range op.Parameters {
			r.Params = append(r.Params, browsedParam{p.Name, p.In, schemaType(p.Schema), p.Description, p.Required})
		}
		if op.RequestBody != nil && op.RequestBody.Content["application/json"] != nil {
			s := op.RequestBody.Content["application/json"].Schema
			if s.Ref != "" {
				s = doc.Components.Schemas.SchemaFromRef(s.Ref)
			}
			for name, field := range s.Properties {
				r.Body = append(r.Body, browsedParam{Name: name, Type: schemaType(field), About: field.Description, Required: slices.Contains(s.Required, name)})
			}
			slices.SortFunc(r.Body, func(x, y browsedParam) int { return strings.Compare(x.Name, y.Name) })
		}
		at := slices.IndexFunc(out, func(t browsedTag) bool { return t.Name == op.Tags[0] })
		if at < 0 {
			out = append(out, browsedTag{Name: op.Tags[0]})
			at = len(out) - 1
		}
		out[at].Routes = append(out[at].Routes, r)
	}
	slices.SortFunc(out, func(x, y browsedTag) int { return strings.Compare(x.Name, y.Name) })
	return out
}

func schemaType(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	case s.Type == "array":
		return "list of " + schemaType(s.Items)
	case len(s.Enum) > 0:
		words := make([]string, len(s.Enum))
		for i, e := range s.Enum {
			words[i], _ = e.(string)
		}
		return strings.Join(words, " | ")
	case s.Type == "":
		return "JSON"
	}
	return s.Type
}
