package export

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// asker asks the FHIR server.
type asker interface {
	Ask(ctx context.Context, c message.Call) (*message.Answer, error)
	Pass(ctx context.Context, c message.Call, accept []string, w http.ResponseWriter) error
}

// judge says what the token may export.
type judge interface {
	Rights() *access.Rights
	MayDeny() bool
	Ruled(ctx context.Context, res resource.Resource) policy.Effect
	Under(ctx context.Context, c message.Call, i interaction.Interaction, answer func() (*message.Answer, error)) (*message.Answer, error)
}

// Exports are the exports that one request needs.
type Exports struct {
	Server     asker             // asks the FHIR server
	Judge      judge             // judges what it answers
	At         message.Addresses // names what it holds as clients know it
	Sealing    paging.Sealing    // seals links to the job and its files
	Binding    string            // of links to the token
	R          *http.Request     // the client's
	Parameters searchparam.Set   // are the search parameters
	Limit      int64             // of a line
}

// systemScopes are the scopes to export types; without one, all.
func systemScopes(types ...string) string {
	if len(types) == 0 {
		types = []string{smart.AnyType}
	}
	scopes := make([]string, len(types))
	for n, t := range types {
		scopes[n] = smart.ResourceScope{Level: "system", Type: t, Permission: message.ReadSearch}.String()
	}
	return strings.Join(scopes, " ")
}

// below is a link of the FHIR server as path and query below its base.
func below(base, link string) (path, query string, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return "", "", message.Withheld(err)
	}
	rest, ok := strings.CutPrefix(u.Path, base+"/")
	if !ok || rest == "" {
		return "", "", message.Withheld(paging.ErrForeignLink)
	}
	return rest, u.RawQuery, nil
}

// exportParameters are those of a kick-off that are passed on, with the element that holds each in a body (Bulk Data
// Access 2.0, "Query Parameters").
var exportParameters = map[string]string{
	"_outputFormat": "valueString", "_since": "valueInstant", "_until": "valueInstant", "_type": "valueString",
	"_typeFilter": "valueString", "_elements": "valueString", "includeAssociatedData": "valueString",
	"organizeOutputBy": "valueString", "patient": "valueReference",
}

// exportTypes are the types that an export may hold.
type exportTypes struct {
	names      []string
	all        bool
	parameters searchparam.Set // that _typeFilter may have
}

// has reports whether a type may be exported.
func (t exportTypes) has(name string) bool { return t.all || slices.Contains(t.names, name) }

// exportable are the types that may be exported: those that a system scope covers whole, with r and s.
func (x *Exports) exportable() exportTypes {
	t := exportTypes{parameters: x.Parameters}
	for _, g := range x.Judge.Rights().Grants {
		switch {
		case !strings.HasPrefix(g.Scope, "system/") || !g.Whole() || g.Permission&message.ReadSearch != message.ReadSearch:
		case g.Type == smart.AnyType:
			t.all = true
		default:
			t.names = append(t.names, g.Type)
		}
	}
	slices.Sort(t.names)
	t.names = slices.Compact(t.names)
	return t
}

// confine judges the parameters of a kick-off, and sets _type to what may be exported.
func (t exportTypes) confine(i interaction.Interaction, parameters []smart.Parameter) ([]smart.Parameter, error) {
	var named []string
	passed := make([]smart.Parameter, 0, len(parameters)+1)
	for _, p := range parameters {
		if p.Name == "_type" {
			named = append(named, listed(p.Value)...)
			continue
		}
		if err := t.check(p, i); err != nil {
			return nil, err
		}
		passed = append(passed, p)
	}
	if len(named) == 0 && !t.all {
		if named = t.within(i); len(named) == 0 {
			return nil, message.Forbidden(message.ErrScope, "No system scope is about a type that this exports.").Lifted(systemScopes())
		}
	}
	for _, name := range named {
		if !t.has(name) || !interaction.IsType(name) {
			refusal := message.Forbidden(message.ErrScope, "No system scope allows to export %s: it needs the permissions r and s on the whole type.", strconv.Quote(name))
			if interaction.IsType(name) {
				refusal.Scope = systemScopes(name)
			}
			return nil, refusal
		}
	}
	if len(named) > 0 {
		passed = append(passed, smart.Parameter{Name: "_type", Value: strings.Join(named, ",")})
	}
	return passed, nil
}

// listed are the words of a list with commas, without empty ones.
func listed(value string) []string {
	var words []string
	for word := range strings.SplitSeq(value, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// within are the types that an export at its level can hold: patients have records of the types in their compartment,
// and servers refuse to export some others with them. Of those in it, a Group and a List name other patients.
func (t exportTypes) within(i interaction.Interaction) []string {
	if i.Type == "" {
		return t.names
	}
	return slices.DeleteFunc(slices.Clone(t.names), func(name string) bool {
		_, ok := compartment.Patient(name)
		return !ok || i.Type == "Patient" && (name == "Group" || name == "List")
	})
}

// check refuses a parameter that could tell of types that may not be exported.
func (t exportTypes) check(p smart.Parameter, i interaction.Interaction) error {
	ok := exportParameters[p.Name] != ""
	switch {
	case t.all:
	case p.Name == "_typeFilter":
		ok = t.checkFilter(p.Value)
	case p.Name == "includeAssociatedData":
		ok = t.has("Provenance") && (p.Value == "LatestProvenanceResources" || p.Value == "RelevantProvenanceResources")
	}
	if p.Name == "patient" && i.Type == "" {
		ok = false
	}
	if !ok {
		return message.Forbidden(message.ErrOracle, "The parameter %s of $export is not allowed here with this value.", strconv.Quote(p.Name))
	}
	return nil
}

// checkFilter reports whether a _typeFilter is a list of searches by the elements of types that may be exported. A
// comma is part of a search unless another search begins behind it.
func (t exportTypes) checkFilter(value string) bool {
	var searches []string
	for part := range strings.SplitSeq(value, ",") {
		if strings.Contains(part, "?") {
			searches = append(searches, part)
		} else if len(searches) > 0 {
			searches[len(searches)-1] += "," + part
		} else {
			return false
		}
	}
	return !slices.ContainsFunc(searches, func(s string) bool { return !t.checkSearch(s) })
}

func (t exportTypes) checkSearch(search string) bool {
	name, query, _ := strings.Cut(search, "?")
	parameters, err := smart.ParseParameters(query)
	if err != nil || !t.has(name) {
		return false
	}
	return !slices.ContainsFunc(parameters, func(p smart.Parameter) bool {
		_, ok := t.parameters.Lookup(name, p.Name)
		return !ok // modifiers and chains are part of the name
	})
}

// exportCall is the kick-off with the parameters that were judged, by the client's method.
func exportCall(c message.Call, parameters []smart.Parameter) message.Call {
	header := http.Header{"Prefer": {"respond-async"}}
	if c.Method != http.MethodPost {
		return message.Call{Method: http.MethodGet, Path: c.Path, Query: smart.EncodeParameters(parameters), Header: header}
	}
	list := make([]map[string]any, 0, len(parameters))
	for _, p := range parameters {
		element := exportParameters[p.Name]
		if element == "valueReference" {
			list = append(list, map[string]any{"name": p.Name, element: map[string]string{"reference": p.Value}})
		} else {
			list = append(list, map[string]any{"name": p.Name, element: p.Value})
		}
	}
	body := map[string]any{"resourceType": "Parameters"}
	if len(list) > 0 {
		body["parameter"] = list
	}
	text, _ := json.Marshal(body) // strings never fail
	header.Set("Content-Type", message.TypeJSON)
	return message.Call{Method: http.MethodPost, Path: c.Path, Header: header, Body: text}
}
