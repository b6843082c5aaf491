package definitions

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// builtIn loads the embedded core if enabled and returns the sources.
func (l *resourceLoader) builtIn(ctx context.Context) ([]codesystem.Source, error) {
	sources := l.options.Sources
	if l.options.Core {
		if err := l.packed(ctx, coreDefinitions); err != nil {
			return nil, fmt.Errorf("built-in definitions: %w", err)
		}
		l.library.Systems.freeze()
		sources = slices.Concat(codesystem.Registered(), sources)
	}
	for _, s := range sources {
		if err := l.packed(ctx, s.ValueSets); err != nil {
			return nil, fmt.Errorf("value sets of %s: %w", s.URL, err)
		}
	}
	return sources, nil
}

// addBuiltIn adds the sources, except those replaced by a definition with concepts.
func addBuiltIn(l *Set, sources []codesystem.Source) error {
	for _, s := range sources {
		if l.Systems.hasReplacement(s.URL, contentOf(s)) {
			continue
		}
		if w, ok := s.System.(weighable); ok && l.Usage.Files.Of(s.URL) != nil {
			s.System = w.Weigh(l.Usage.Files.Of(s.URL).All())
		}
		cs, err := systemOf(s)
		if err != nil {
			return fmt.Errorf("code system %s: %w", s.URL, err)
		}
		l.Systems.AddCodeSystem(cs)
	}
	return nil
}

// contentOf returns the content mode of a source.
func contentOf(s codesystem.Source) contentMode {
	return contentMode(cmp.Or(s.Content, string(ContentComplete)))
}

// weighable is a [codesystem.System] that supports usage weights.
type weighable interface {
	Weigh(weights iter.Seq2[string, float64]) codesystem.System
}

// systemOf returns the code system of a source without reading its concepts.
func systemOf(s codesystem.Source) (*CodeSystem, error) {
	b := codeSystemBuilder{}
	b.reset()
	b.Definition = Definition{URL: s.URL, Version: s.Version, Name: s.Name, Status: "active"}
	r := fhirjson.ReaderOf(jsontext.Value(cmp.Or(s.Members, "{}")))
	if err := r.Object(func(name []byte) error { return b.member(r, string(name)) }); err != nil {
		return nil, err
	}
	cs := b.CodeSystem
	cs.Concepts, cs.CaseSensitive = codesystem.DetectInterfaces(s.System), s.CaseSensitive
	cs.Copyright, cs.Common, cs.edition, cs.byValue, cs.builtIn = s.Copyright, s.Common, s.Edition, s.ByValue, true
	cs.ReasonIssue = s.ReasonIssue
	cs.OtherMembers = append(cs.OtherMembers, fhirjson.Member{Name: "caseSensitive", Value: jsontext.Value(strconv.FormatBool(s.CaseSensitive))})
	cs.Content = contentOf(s)
	content := cs.Content // content from the source's resource members
	switch {
	case cs.Concepts.List == nil:
		content = contentNotPresent
		cs.OtherMembers = append(cs.OtherMembers, fhirjson.Member{Name: "compositional", Value: jsontext.Value("true")})
	case s.Common != "", content == ContentStandIn:
		content = ContentFragment
	}
	cs.addText("content", string(content))
	cs.addText("copyright", s.Copyright)
	return &cs, nil
}

// addText adds a member to the read representation unless text is empty.
func (cs *CodeSystem) addText(name, text string) {
	if text != "" {
		cs.OtherMembers = append(cs.OtherMembers, fhirjson.Member{Name: name, Value: fhirjson.AppendString(nil, text)})
	}
}
