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

// loadBuiltIn loads the embedded definitions if they are enabled and returns the sources.
func (l *resourceLoader) loadBuiltIn(ctx context.Context) ([]codesystem.Source, error) {
	sources := l.options.Sources
	if l.options.Core {
		if err := l.loadEmbedded(ctx, coreDefinitions); err != nil {
			return nil, fmt.Errorf("loading built-in definitions: %w", err)
		}
		l.definitions.Systems.markOutdatedCopies()
		sources = slices.Concat(codesystem.Sources(), sources)
	}
	for _, s := range sources {
		if err := l.loadEmbedded(ctx, s.ValueSets); err != nil {
			return nil, fmt.Errorf("loading value sets of %s: %w", s.URL, err)
		}
	}
	return sources, nil
}

// addBuiltIn adds the sources except those that a definition with concepts replaces.
func addBuiltIn(l *Set, sources []codesystem.Source) error {
	for _, s := range sources {
		if l.Systems.hasReplacement(s.URL, contentModeOf(s)) {
			continue
		}
		if w, ok := s.System.(weightedSystem); ok && l.Usage.Files.TableFor(s.URL) != nil {
			s.System = w.WithWeights(l.Usage.Files.TableFor(s.URL).All())
		}
		cs, err := newSourceSystem(s)
		if err != nil {
			return fmt.Errorf("loading code system %s: %w", s.URL, err)
		}
		l.Systems.AddCodeSystem(cs)
	}
	return nil
}

// contentModeOf returns the content mode of a source.
func contentModeOf(s codesystem.Source) contentMode {
	return contentMode(cmp.Or(s.Content, string(ContentComplete)))
}

// weightedSystem is a [codesystem.System] that supports usage weights.
type weightedSystem interface {
	WithWeights(weights iter.Seq2[string, float64]) codesystem.System
}

// newSourceSystem returns the code system of a source without reading its concepts.
func newSourceSystem(s codesystem.Source) (*CodeSystem, error) {
	b := codeSystemBuilder{}
	b.reset()
	b.Definition = Definition{URL: s.URL, Version: s.Version, Name: s.Name, Status: "active"}
	r := fhirjson.NewValueReader(jsontext.Value(cmp.Or(s.Members, "{}")))
	if err := r.Object(func(name []byte) error { return b.readMember(r, string(name)) }); err != nil {
		return nil, err
	}
	cs := b.CodeSystem
	cs.Concepts, cs.CaseSensitive = codesystem.DetectInterfaces(s.System), s.CaseSensitive
	cs.Copyright, cs.CommonCodes, cs.edition, cs.byValue, cs.isBuiltIn = s.Copyright, s.CommonCodes, s.Edition, s.ValueSetProperty, true
	cs.ReasonIssue, cs.isDefault, cs.editionName = s.ReportsReason, s.IsDefaultEdition, s.EditionName
	cs.OtherMembers = append(cs.OtherMembers, fhirjson.Member{Name: "caseSensitive", Value: jsontext.Value(strconv.FormatBool(s.CaseSensitive))})
	cs.Content = contentModeOf(s)
	content := cs.Content // CodeSystem.content in the read representation
	switch {
	case cs.Concepts.List == nil:
		content = contentNotPresent
		cs.OtherMembers = append(cs.OtherMembers, fhirjson.Member{Name: "compositional", Value: jsontext.Value("true")})
	case s.CommonCodes != "", content == ContentLookupOnly:
		content = ContentFragment
	}
	cs.addTextMember("content", string(content))
	cs.addTextMember("copyright", s.Copyright)
	return &cs, nil
}

// addTextMember adds a member to the read representation unless text is empty.
func (cs *CodeSystem) addTextMember(name, text string) {
	if text != "" {
		cs.OtherMembers = append(cs.OtherMembers, fhirjson.Member{Name: name, Value: fhirjson.AppendString(nil, text)})
	}
}
