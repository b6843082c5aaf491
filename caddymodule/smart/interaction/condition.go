package interaction

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// conditionCreate makes a create conditional that has criteria: it adds those of If-None-Exist, which is a query without
// the question mark (R4 http.html#ccreate). Criteria in the URL of a create are refused: some servers heed them, the
// others would create.
func (i *Interaction) conditionCreate(criteria []string) error {
	if slices.ContainsFunc(i.Parameters, isSpecial) {
		return errQuery
	}
	if len(criteria) == 0 {
		return nil
	}
	list, err := smart.ParseParameters(criteria[0])
	if err != nil {
		return fmt.Errorf("%w: %w", errQuery, err)
	}
	if len(criteria) > 1 || !hasCriteria(list) || slices.ContainsFunc(list, isGeneral) {
		return errCriteria
	}
	i.Kind = ConditionalCreate
	i.Parameters = append(i.Parameters, list...)
	return nil
}

// Criteria are the parameters that say what the resources are like, without those about the form of the answer
// (_format, _pretty, _summary and _elements).
func (i Interaction) Criteria() []smart.Parameter {
	return slices.DeleteFunc(slices.Clone(i.Parameters), isGeneral)
}

// hasCriteria reports whether one of the parameters selects resources. Without, a conditional delete would be one of all
// resources of its type. Servers pass over blank values.
func hasCriteria(list []smart.Parameter) bool {
	return slices.ContainsFunc(list, func(p smart.Parameter) bool { return isCriterion(p.Name) && !isBlank(p.Value) })
}

func isBlank(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r != ',' && !unicode.IsSpace(r) && !unicode.IsControl(r) })
}

// isCriterion reports whether a parameter selects resources. All but these beginning with an underscore are about the
// answer (R4 search.html).
func isCriterion(name string) bool {
	plain, _, _ := strings.Cut(name, ":")
	switch plain {
	case "_content", "_filter", "_has", "_id", "_lastUpdated", "_list", "_profile", "_query", "_security", "_source",
		"_tag", "_text":
		return true
	}
	return !strings.HasPrefix(name, "_")
}

// isGeneral reports whether a parameter is about the form of any answer (R4 http.html#parameters).
func isGeneral(p smart.Parameter) bool {
	return p.Name == "_format" || p.Name == "_pretty" || p.Name == "_summary" || p.Name == "_elements"
}

func isSpecial(p smart.Parameter) bool { return !isGeneral(p) }
