package definitions

import (
	"context"
	"fmt"
	"os"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/weights"
)

// DefinitionWeights is the word in [Options.Weights] for the extension itemWeight of the concepts of code systems,
// supplements and value sets. FHIR has it for scores of answers as well, so it does not count unless this is said.
const DefinitionWeights = "definitions"

// Usage says how much codes are used: as files say, or else, if items is set, the extension itemWeight.
type Usage struct {
	Files *weights.Weights // nil: none
	Items bool             // whether the extension itemWeight counts
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

// weigh says how much the concepts of a code system are used.
func (u *Usage) weigh(url string, concepts *table.Table) {
	if codes := u.Files.Of(url); codes != nil {
		concepts.Weigh(codes.All())
	} else if u.Items {
		concepts.WeighItems()
	}
}
