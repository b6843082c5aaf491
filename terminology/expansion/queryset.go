package expansion

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Set reads one parameter and reports whether it is known.
func (q *Query) Set(in *parameters.Input) (known bool, err error) {
	switch in.Name {
	case "url":
		q.URL = in.Value
	case "valueSet":
		q.ValueSet = in.Resource
		if in.Resource == nil {
			return true, outcome.BadRequest("invalid", "the parameter valueSet must be a resource, which only a POST can give")
		}
	case "valueSetVersion":
		q.Version = in.Value
	case "context":
		q.Context = in.Value
	case "contextDirection": // has no effect: a binding's codes are both those to choose from and those to expect
		if in.Value != "incoming" && in.Value != "outgoing" {
			return true, outcome.BadRequest("invalid", "the parameter contextDirection must be incoming or outgoing")
		}
	case "filter":
		if strings.TrimSpace(in.Value) != "" { // a blank one is none, and could not be echoed: FHIR has no empty strings
			q.Filter = in.Value
		}
	case "date":
		q.Date = in.Value
	case "offset":
		q.Offset, err = parameters.Number(in)
	case "count":
		q.Count, err = parameters.Number(in)
	case "displayLanguage":
		q.Language.Display, err = in.Value, checkLanguage(in.Value)
	default:
		return q.setOther(in)
	}
	return true, err
}

// setOther reads a parameter that is a list, a boolean, _summary or _elements.
func (q *Query) setOther(in *parameters.Input) (known bool, err error) {
	if list := q.List(in.Name); list != nil {
		*list = append(*list, in.Value)
		return true, q.Versions.Check(in)
	}
	if c := q.choice(in.Name); c != nil {
		return true, c.Set(in)
	}
	return q.subset.Set(in)
}

func checkLanguage(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		tag, _, _ := strings.Cut(item, ";")
		tag = strings.TrimSpace(tag)
		letters := strings.IndexFunc(tag, func(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' || r == '*' })
		if tag != "" && letters != 0 {
			return outcome.New(http.StatusBadRequest, "processing", "invalid-display", "INVALID_DISPLAY_NAME", fmt.Sprintf("Invalid displayLanguage: '%s'", list))
		}
	}
	return nil
}

// Adopt takes the parameters that a value set sets for its own expansion, where the query has none.
func (q *Query) Adopt(own []parameters.Input) error {
	if len(own) == 0 {
		return nil
	}
	adopted := *q
	for i := range own {
		if in := &own[i]; in.Name != "displayLanguage" && !q.gives(in.Name) { // displayLanguage: see Language.preferred
			if _, err := adopted.Set(in); err != nil {
				return err
			}
		}
	}
	*q = adopted
	return nil
}

// gives reports whether the query has a parameter; one sent in a request counts even if it is blank.
func (q *Query) gives(name string) bool {
	if q.Sent(name) {
		return true
	}
	if list := q.List(name); list != nil {
		return *list != nil
	}
	if c := q.choice(name); c != nil {
		return *c != parameters.Unset
	}
	switch name {
	case "filter":
		return q.Filter != ""
	case "date":
		return q.Date != ""
	case "offset":
		return q.Offset != nil
	case "count":
		return q.Count != nil
	}
	return false
}
