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
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/weights"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// EnglishSynonyms is the name of the built-in list of [Options.Synonyms].
const EnglishSynonyms = "english"

// loadSynonyms reads the configured lists of synonyms. Concept maps named by canonical must already be loaded.
func (l *resourceLoader) loadSynonyms(ctx context.Context) error {
	if len(l.options.Synonyms) == 0 {
		return nil
	}
	l.library.synonyms = new(textindex.Synonyms)
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
		return l.library.synonyms.Read(strings.NewReader(synonyms.English))
	case strings.Contains(name, "://"), strings.HasPrefix(name, "urn:"):
		return l.mapSynonyms(ctx, name)
	case extension == ".json", extension == ".xml":
		return l.mapSynonymsIn(ctx, name)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return l.library.synonyms.Read(file)
}

// maxMapSynonyms is the maximum number of synonyms from one concept map.
const maxMapSynonyms = 100_000

var (
	errNoConceptMap    = errors.New("there is no ConceptMap")
	errNoSynonyms      = errors.New("the ConceptMap makes none: no target that is equivalent, wider or narrower has another display than its element, both short enough")
	errTooManySynonyms = fmt.Errorf("the ConceptMap makes more than %d", maxMapSynonyms)
)

// mapSynonyms adds the synonyms of a loaded concept map.
func (l *resourceLoader) mapSynonyms(ctx context.Context, canonical string) error {
	m, ok := l.library.Maps.ConceptMap(canonical)
	if !ok {
		return fmt.Errorf("%w of this canonical among the definitions", errNoConceptMap)
	}
	return l.addMapSynonyms(ctx, m)
}

// mapSynonymsIn adds the synonyms of the concept maps in a file.
func (l *resourceLoader) mapSynonymsIn(ctx context.Context, file string) error {
	own := newResourceLoader(emptyLibrary())
	own.options = l.options
	defer own.codes.table.Memory.Release()
	if err := own.file(ctx, file); err != nil {
		return err
	}
	if len(own.library.Maps.Lists[0]) == 0 {
		return errNoConceptMap
	}
	for _, m := range own.library.Maps.Lists[0] {
		if err := l.addMapSynonyms(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// addMapSynonyms adds the synonyms of a concept map.
func (l *resourceLoader) addMapSynonyms(ctx context.Context, m *ConceptMap) error {
	x := mapSynonyms{library: l.library, language: cmp.Or(m.Language, "en")}
	for i := range m.Groups {
		g := &m.Groups[i]
		for k := range g.Elements {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := x.element(g, &g.Elements[k]); err != nil {
				return err
			}
		}
	}
	if x.made == 0 {
		return errNoSynonyms
	}
	l.options.Logger.InfoContext(ctx, "synonyms made of a concept map", slog.String("url", m.Canonical()),
		slog.Int("synonyms", x.made), slog.Int("left_out", x.leftOut))
	return nil
}

// mapSynonyms collects the synonyms of one concept map.
type mapSynonyms struct {
	library  *Set
	language string
	made     int
	leftOut  int // synonyms dropped because they have too many words or too many alternatives
}

// element adds the synonyms of an element and its targets. It ignores targets that depend on other elements or produce
// several codes, because their meaning differs.
func (x *mapSynonyms) element(g *MapGroup, e *MapElement) error {
	var sources []string
	for i := range e.Targets {
		t := &e.Targets[i]
		there, back := foundBy(cmp.Or(Equivalences[t.Equivalence], t.Equivalence))
		if !there && !back || t.Code == "" || len(t.DependsOn)+len(t.Products) > 0 {
			continue
		}
		if sources == nil {
			sources = x.displays(e.Display, g.Source, g.SourceVersion, e.Code)
		}
		targets := x.displays(t.Display, g.Target, g.TargetVersion, t.Code)
		for _, source := range sources {
			for _, target := range targets {
				if err := errors.Join(x.add(there, source, target), x.add(back, target, source)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// foundBy reports whether the source's display finds the target and vice versa. Equivalent concepts find each other. A
// narrower text finds the wider concept, which includes it, but not vice versa.
func foundBy(equivalence string) (there, back bool) {
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

// displays returns the displays of a code: the display in the map and, if loaded, the display in the code system.
func (x *mapSynonyms) displays(own, system, version, code string) (all []string) {
	if own != "" {
		all = append(all, own)
	}
	index := x.library.Systems.CodeSystem(system, version)
	if index == None {
		return all
	}
	cs := x.library.Systems.CodeSystems[index]
	if concept, ok := cs.Concepts.Locate([]byte(code)); ok {
		if _, display, _ := cs.Concepts.Concept(concept); len(display) > 0 && string(display) != own {
			all = append(all, string(display))
		}
	}
	return all
}

func (x *mapSynonyms) add(wanted bool, typed, other string) error {
	if !wanted || textindex.Fold(typed) == textindex.Fold(other) {
		return nil
	}
	if x.library.synonyms.Add(x.language, typed, other) != nil {
		x.leftOut++
		return nil
	}
	if x.made++; x.made > maxMapSynonyms {
		return errTooManySynonyms
	}
	return nil
}

// DefinitionWeights is the entry of [Options.Weights] that enables the extension itemWeight of concepts in code
// systems, supplements and value sets. It is opt-in because FHIR also uses the extension for scores of answers.
const DefinitionWeights = "definitions"

// Usage contains the usage weights of codes. Files take precedence over the extension itemWeight.
type Usage struct {
	Files *weights.Weights // weights from files; nil if none
	Items bool             // whether the extension itemWeight is used
}

func loadWeights(ctx context.Context, names []string) (u Usage, err error) {
	for _, name := range names {
		if name == DefinitionWeights {
			u.Items = true
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

// weigh applies the usage weights to the concepts of a code system.
func (u *Usage) weigh(url string, concepts *table.Table) {
	if codes := u.Files.Of(url); codes != nil {
		concepts.Weigh(codes.All())
	} else if u.Items {
		concepts.WeighItems()
	}
}
