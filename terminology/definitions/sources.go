package definitions

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/bcp47"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// builtIn are the code systems that the program knows itself, one line each.
var builtIn = []codesystem.Source{
	bcp47.Source,
}

// addBuiltIn adds the code systems that the program knows itself, but for those whose concepts a definition has.
func addBuiltIn(l *Set) {
	for _, s := range builtIn {
		if index := l.Systems.CodeSystem(s.URL, ""); index != None && l.Systems.CodeSystems[index].Content.HasConcepts() {
			continue
		}
		l.Systems.AddCodeSystem(systemOf(s))
	}
}

// systemOf returns the code system of a source.
func systemOf(s codesystem.Source) *CodeSystem {
	return &CodeSystem{
		Definition: Definition{URL: s.URL, Version: s.Version, Name: s.Name, Status: "active"},
		Concepts:   codesystem.Of(s.System), Content: ContentComplete, CaseSensitive: s.CaseSensitive,
		Rest: []fhirjson.Member{
			{Name: "caseSensitive", Value: jsontext.Value(strconv.FormatBool(s.CaseSensitive))},
			{Name: "content", Value: jsontext.Value(`"complete"`)},
		},
	}
}
