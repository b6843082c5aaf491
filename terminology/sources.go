package terminology

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/bcp47"
)

// builtIn are the code systems that the program knows itself, one line each.
var builtIn = []codesystem.Source{
	bcp47.Source,
}

// addBuiltIn adds the code systems that the program knows itself, but for those whose concepts a definition has.
func (l *Set) addBuiltIn() {
	for _, s := range builtIn {
		if index := l.codeSystem(s.URL, ""); index != none && l.codeSystems[index].content.hasConcepts() {
			continue
		}
		l.addCodeSystem(&codeSystem{
			definition: definition{url: s.URL, version: s.Version, name: s.Name, status: "active"},
			concepts:   codesystem.Of(s.System), content: contentComplete, caseSensitive: s.CaseSensitive,
		})
	}
}
