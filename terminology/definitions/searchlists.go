package definitions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/synonyms"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/weights"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// EnglishSynonyms is the entry of [Options.Synonyms] for the built-in list.
const EnglishSynonyms = "english"

// loadSynonyms reads the configured lists of synonyms. Concept maps listed by canonical must already be loaded.
func (l *resourceLoader) loadSynonyms(ctx context.Context) error {
	if len(l.options.Synonyms) == 0 {
		return nil
	}
	l.definitions.synonyms = new(textindex.Synonyms)
	for _, name := range l.options.Synonyms {
		if err := l.readSynonyms(ctx, name); err != nil {
			return fmt.Errorf("synonyms in %s: %w", name, err)
		}
	}
	return nil
}

func (l *resourceLoader) readSynonyms(ctx context.Context, name string) error {
	switch extension := filepath.Ext(name); {
	case name == EnglishSynonyms:
		return l.definitions.synonyms.Read(strings.NewReader(synonyms.English))
	case strings.Contains(name, "://"), strings.HasPrefix(name, "urn:"):
		return l.loadMapSynonyms(ctx, name)
	case extension == ".json", extension == ".xml":
		return l.loadMapSynonymsFile(ctx, name)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return l.definitions.synonyms.Read(file)
}

// maxMapSynonyms is the maximum number of synonyms in one concept map.
const maxMapSynonyms = 100_000

var (
	errNoConceptMap    = errors.New("no ConceptMap found")
	errNoSynonyms      = errors.New("the ConceptMap yields no synonyms: no equivalent, wider or narrower target has a display that differs from its element's, or the displays are too long")
	errTooManySynonyms = fmt.Errorf("the ConceptMap yields more than %d synonyms", maxMapSynonyms)
)

// loadMapSynonyms adds the synonyms of a loaded concept map.
func (l *resourceLoader) loadMapSynonyms(ctx context.Context, canonical string) error {
	m, ok := l.definitions.Maps.ConceptMap(canonical)
	if !ok {
		return fmt.Errorf("%w with this canonical among the definitions", errNoConceptMap)
	}
	return l.addMapSynonyms(ctx, m)
}

// loadMapSynonymsFile adds the synonyms of the concept maps in a file.
func (l *resourceLoader) loadMapSynonymsFile(ctx context.Context, file string) error {
	own := newResourceLoader(newEmptySet())
	own.options = l.options
	defer own.codeSystem.table.Memory.Release()
	if err := own.loadFile(ctx, file); err != nil {
		return err
	}
	if len(own.definitions.Maps.Layers[0]) == 0 {
		return errNoConceptMap
	}
	for _, m := range own.definitions.Maps.Layers[0] {
		if err := l.addMapSynonyms(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// addMapSynonyms adds the synonyms of a concept map.
func (l *resourceLoader) addMapSynonyms(ctx context.Context, m *ConceptMap) error {
	x := mapSynonymCollector{definitions: l.definitions, language: cmp.Or(m.Language, "en")}
	for i := range m.Groups {
		g := &m.Groups[i]
		for k := range g.Elements {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := x.addElement(g, &g.Elements[k]); err != nil {
				return err
			}
		}
	}
	if x.added == 0 {
		return errNoSynonyms
	}
	l.options.Logger.InfoContext(ctx, "synonyms loaded from concept map", slog.String("url", m.Canonical()),
		slog.Int("synonyms", x.added), slog.Int("left_out", x.dropped))
	return nil
}

// mapSynonymCollector collects the synonyms of one concept map.
type mapSynonymCollector struct {
	definitions *Set
	language    string
	added       int
	dropped     int // number of synonyms dropped because they had too many words or alternatives
}

// addElement adds the synonyms of an element and its targets. It ignores targets that depend on other elements or produce
// several codes, because their meaning differs from the element's.
func (x *mapSynonymCollector) addElement(g *MapGroup, e *MapElement) error {
	var sources []string
	for i := range e.Targets {
		t := &e.Targets[i]
		forward, backward := searchDirections(cmp.Or(Equivalences[t.Equivalence], t.Equivalence))
		if !forward && !backward || t.Code == "" || len(t.DependsOn)+len(t.Products) > 0 {
			continue
		}
		if sources == nil {
			sources = x.displays(e.Display, g.Source, g.SourceVersion, e.Code)
		}
		targets := x.displays(t.Display, g.Target, g.TargetVersion, t.Code)
		for _, source := range sources {
			for _, target := range targets {
				if err := errors.Join(x.add(forward, source, target), x.add(backward, target, source)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// searchDirections reports whether the source's display finds the target (forward) and vice versa (backward). Equivalent
// concepts find each other. A narrower text finds the wider concept, which includes it, but not vice versa.
func searchDirections(equivalence string) (forward, backward bool) {
	switch equivalence {
	case "equivalent", "equal":
		return true, true
	case "wider", "subsumes":
		return true, false
	case "narrower", "specializes":
		return false, true
	}
	return false, false
}

// displays returns the displays of a code: own (the display in the map) and the display in a loaded code system.
func (x *mapSynonymCollector) displays(own, system, version, code string) (all []string) {
	if own != "" {
		all = append(all, own)
	}
	index := x.definitions.Systems.CodeSystem(system, version)
	if index == None {
		return all
	}
	cs := x.definitions.Systems.CodeSystems[index]
	if concept, ok := cs.Concepts.Locate([]byte(code)); ok {
		if _, display, _ := cs.Concepts.Concept(concept); len(display) > 0 && string(display) != own {
			all = append(all, string(display))
		}
	}
	return all
}

func (x *mapSynonymCollector) add(enabled bool, typed, other string) error {
	if !enabled || textindex.Fold(typed) == textindex.Fold(other) {
		return nil
	}
	if x.definitions.synonyms.Add(x.language, typed, other) != nil {
		x.dropped++
		return nil
	}
	if x.added++; x.added > maxMapSynonyms {
		return errTooManySynonyms
	}
	return nil
}

// DefinitionWeights is the entry of [Options.Weights] that enables the extension itemWeight of concepts in code systems,
// supplements and value sets. It is not enabled by default because FHIR also uses the extension for scores of answers.
const DefinitionWeights = "definitions"

// Usage contains the usage weights of codes. Files take precedence over the extension itemWeight.
type Usage struct {
	Files          *weights.Weights // weights from files; nil if there are none
	UsesItemWeight bool             // whether the extension itemWeight is used
}

func loadWeights(ctx context.Context, names []string) (u Usage, err error) {
	for _, name := range names {
		if name == DefinitionWeights {
			u.UsesItemWeight = true
			continue
		}
		if u.Files == nil {
			u.Files = new(weights.Weights)
		}
		if err := readWeights(ctx, u.Files, name); err != nil {
			return u, fmt.Errorf("weights in %s: %w", name, err)
		}
	}
	return u, nil
}

func readWeights(ctx context.Context, w *weights.Weights, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return w.Read(ctx, file)
}

// applyTo applies the usage weights to the concepts of a code system.
func (u *Usage) applyTo(url string, concepts weighable) {
	if codes := u.Files.TableFor(url); codes != nil {
		concepts.SetWeights(codes.All())
	} else if u.UsesItemWeight {
		concepts.SetItemWeights()
	}
}
