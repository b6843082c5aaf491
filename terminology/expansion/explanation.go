package expansion

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Explanation says why an entry of a filtered expansion is where it is. docs/terminology.md has the rules that it names.
type Explanation struct {
	// Tier is how well the entry matches: the row of the table of tiers, from 1.
	Tier int

	// Rule is what the tier says of the entry, and After what put it after the one before it; empty for the first of a tier.
	Rule, After string

	// Designations are those without which the entry would not be in its tier. There are none if its display and its code
	// are enough.
	Designations []parameters.Designation

	// Synonyms are what words of the filter were also taken for, where the entry has only that.
	Synonyms []string
}

// How many entries an answer may explain, and in how many steps. A thousand entries with twenty designations each, of which
// the filter needs two, take 1,300,000; the bound is reached in about half a second.
const (
	maxExplained      = 1000
	maxExplainedSteps = 2_000_000
)

// explainedHit is a hit with its explanation.
type explainedHit struct {
	textindex.Explanation
	hit textindex.Hit
}

// explain returns the hits from position from up to to with their explanations, and how many there are in all. It fails
// with tooMany if there are too many to explain.
func explain(parts []textindex.Part, f *textindex.Filter, from, to int, tooMany func() error, spend func(int) error) ([]explainedHit, int, error) {
	first := max(0, from-1) // the hit before says what decided
	hits, total, err := textindex.Search(parts, f, first, to, spend)
	if err != nil {
		return nil, 0, err
	}
	if len(hits) > maxExplained+from-first {
		return nil, 0, tooMany()
	}
	left := maxExplainedSteps
	all, err := textindex.Explain(parts, f, hits, func(steps int) error {
		if left -= steps; left < 0 {
			return tooMany()
		}
		return spend(steps)
	})
	if err != nil {
		return nil, 0, err
	}
	var found []explainedHit
	for i := from - first; i < len(hits); i++ {
		found = append(found, explainedHit{all[i], hits[i]})
	}
	return found, total, nil
}

func tooManyExplained(vs *definitions.ValueSet) error {
	return outcome.New(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("What the filter finds in the value set '%s' is too much for explainFilter (more than %d codes, or long texts); ask for a part, with offset and count", vs.Canonical(), maxExplained))
}

// newExplanation returns the explanation of an entry with these texts.
func newExplanation(x *textindex.Explanation, texts []codesystem.Text) Explanation {
	e := Explanation{Tier: x.Tier, Rule: x.Rule, After: x.After, Synonyms: x.Synonyms}
	for _, found := range x.Texts {
		designation := parameters.Designation{Value: found}
		for i := range texts {
			if t := &texts[i]; bytes.Equal(t.Value, []byte(found)) {
				designation.Language, designation.Source = t.Language, t.Source
				designation.Use = parameters.Coding{System: t.Use.System, Code: t.Use.Code, Display: t.Use.Display}
				break
			}
		}
		e.Designations = append(e.Designations, designation)
	}
	return e
}

// explanationURL is the url of the extension for an [Explanation]. FHIR defines none for it.
const explanationURL = "https://github.com/caddy-fhir/caddy-fhir/StructureDefinition/filter-explanation"

// append appends the explanation as an extension.
func (e *Explanation) append(dst []byte) []byte {
	dst = append(dst, `{"url":"`+explanationURL+`","extension":[{"url":"tier","valueInteger":`...)
	dst = append(strconv.AppendInt(dst, int64(e.Tier), 10), '}')
	dst = appendExplained(dst, "rule", "valueString", e.Rule)
	if e.After != "" {
		dst = appendExplained(dst, "after", "valueString", e.After)
	}
	for i := range e.Designations {
		d := &e.Designations[i]
		dst = append(dst, `,{"url":"designation","extension":[{"url":"value","valueString":`...)
		dst = append(fhirjson.AppendString(dst, d.Value), '}')
		if d.Language != "" {
			dst = appendExplained(dst, "language", "valueCode", d.Language)
		}
		dst = append(dst, ']', '}')
	}
	for _, synonym := range e.Synonyms {
		dst = appendExplained(dst, "synonym", "valueString", synonym)
	}
	return append(dst, ']', '}')
}

// appendExplained appends a comma and an extension within another.
func appendExplained(dst []byte, url, member, value string) []byte {
	dst = append(append(append(dst, `,{"url":"`...), url...), '"')
	return append(fhirjson.AppendMember(dst, member, value), '}')
}
