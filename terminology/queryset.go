package terminology

import (
	"fmt"
	"net/http"
	"strings"
)

// set reads one parameter and reports whether it is known.
func (q *Query) set(in *input) (known bool, err error) {
	switch in.name {
	case "url":
		q.URL = in.value
	case "valueSet":
		q.ValueSet = in.resource
		if in.resource == nil {
			return true, badRequest("invalid", "the parameter valueSet must be a resource, which only a POST can give")
		}
	case "valueSetVersion":
		q.Version = in.value
	case "context":
		q.Context = in.value
	case "contextDirection": // has no effect: a binding's codes are both those to choose from and those to expect
		if in.value != "incoming" && in.value != "outgoing" {
			return true, badRequest("invalid", "the parameter contextDirection must be incoming or outgoing")
		}
	case "filter":
		if strings.TrimSpace(in.value) != "" { // a blank one is none, and could not be echoed: FHIR has no empty strings
			q.Filter = in.value
		}
	case "date":
		q.Date = in.value
	case "offset":
		q.Offset, err = number(in)
	case "count":
		q.Count, err = number(in)
	case "displayLanguage":
		q.Language.Display, err = in.value, checkLanguage(in.value)
	default:
		return q.setOther(in)
	}
	return true, err
}

// setOther reads a parameter that is a list, a boolean, _summary or _elements.
func (q *Query) setOther(in *input) (known bool, err error) {
	if list := q.list(in.name); list != nil {
		*list = append(*list, in.value)
		return true, q.Versions.check(in)
	}
	if c := q.choice(in.name); c != nil {
		return true, c.set(in)
	}
	return q.subset.set(in)
}

func checkLanguage(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		tag, _, _ := strings.Cut(item, ";")
		tag = strings.TrimSpace(tag)
		letters := strings.IndexFunc(tag, func(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' || r == '*' })
		if tag != "" && letters != 0 {
			return issue(http.StatusBadRequest, "processing", "invalid-display", "INVALID_DISPLAY_NAME", fmt.Sprintf("Invalid displayLanguage: '%s'", list))
		}
	}
	return nil
}
