package terminology

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/weights"
)

// DefinitionWeights is the word in [Options.Weights] for the extension itemWeight of the concepts of code systems,
// supplements and value sets. FHIR has it for scores of answers as well, so it does not count unless this is said.
const DefinitionWeights = "definitions"

// usage says how much codes are used: as files say, or else, if items is set, the extension itemWeight.
type usage struct {
	files *weights.Weights
	items bool
}

func loadWeights(ctx context.Context, names []string) (u usage, err error) {
	for _, name := range names {
		if name == DefinitionWeights {
			u.items = true
			continue
		}
		if u.files == nil {
			u.files = new(weights.Weights)
		}
		if err := readWeights(ctx, u.files, name); err != nil {
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

// weigh says how much the concepts of a code system are used.
func (u *usage) weigh(url string, concepts *table.Table) {
	if codes := u.files.Of(url); codes != nil {
		concepts.Weigh(codes.All())
	} else if u.items {
		concepts.WeighItems()
	}
}

// listing is codes of a library, of which it says how much they are used.
type listing struct {
	library *Library
	codes   *codeList
}

// weight returns how much an entry is used, if something other than its code system says so: a file for the value set
// goes before the value set's own extension, and this before a supplement.
func (li listing) weight(e entry) (weight float64, ok bool) {
	l, x := li.library, li.codes
	if x.weights != nil {
		return x.weights.Weight(l.code(e)), true
	}
	if l.usage == (usage{}) {
		return 0, false
	}
	if weight = li.ownWeight(e); weight > 0 {
		return weight, true
	}
	for cs, concept := range l.described(l.locate(e), x.supplements) {
		if cs == l.codeSystems[e.codeSystem] || cs.concepts.Search == nil {
			continue
		}
		if weight = cs.concepts.Search.SearchWeight(concept.Number); weight > 0 {
			return weight, true
		}
	}
	if !e.isKnown() || l.codeSystems[e.codeSystem].concepts.Search == nil {
		return l.usage.files.Of(l.systems[l.systemOf(e)].url).Weight(l.code(e)), true
	}
	return 0, false
}

// ownWeight returns the weight that the value set gives an entry.
func (li listing) ownWeight(e entry) float64 {
	l := li.library
	if !l.usage.items || e.listed == 0 {
		return 0
	}
	rows, _ := l.row(e.listed)
	for _, x := range rows.extensionsOf(e.listed) {
		if x.Kind == codesystem.ExtensionWeight {
			return table.ItemWeight(rows.texts.At(x.Value))
		}
	}
	return 0
}

// weightCheck compares weights with a library.
type weightCheck struct {
	library *Library
	log     *slog.Logger
}

// check tells which files are about codes that are not here. It makes the indexes of value sets with weights, so that no
// request waits for them.
func (c weightCheck) check(ctx context.Context) {
	log := c.log
	for url, codes := range c.library.usage.files.All() {
		holds, ok := c.codesOf(ctx, url)
		if !ok {
			log.WarnContext(ctx, "weights are for no code system or value set that is loaded", slog.String("url", url))
			continue
		}
		missing := 0
		for code := range codes.All() {
			if !holds(code) {
				missing++
			}
		}
		if missing > 0 {
			log.WarnContext(ctx, "codes with weights are not there", slog.String("url", url),
				slog.Int("codes", missing), slog.Int("weights", codes.Len()))
		}
	}
}

// codesOf returns what tells the codes of a code system or value set; false if it is not here.
func (c weightCheck) codesOf(ctx context.Context, url string) (holds func(code string) bool, ok bool) {
	l := c.library
	if index := l.codeSystem(url, ""); index != none {
		return func(code string) bool { _, ok := l.codeSystems[index].concepts.Locate([]byte(code)); return ok }, true
	}
	x, err := l.Expand(ctx, Query{ValueSetRef: ValueSetRef{URL: url}, Page: Page{Filter: "a", Count: new(int)}})
	if err != nil {
		return nil, false
	}
	codes := make(map[string]bool, len(x.list.entries))
	l.use(func() {
		for _, e := range x.list.entries {
			codes[string(l.code(e))] = true
		}
	})
	return func(code string) bool { return codes[code] }, true
}
