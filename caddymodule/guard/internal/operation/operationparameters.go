package operation

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

var errParameters = errors.New("parameters that cannot be judged")

// Parameters are those of the query and of a Parameters body, which are one list (R4
// operations.html#3.2.0.4). Those about the form of the answer are left out: it is JSON, and cut resources cannot be
// judged.
func Parameters(c message.Call, i interaction.Interaction) ([]smart.Parameter, error) {
	posted, err := postedParameters(c.Body)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Concat(i.Parameters, posted), isForm), nil
}

// isForm reports whether a parameter is about the form of the answer.
func isForm(p smart.Parameter) bool {
	return slices.Contains([]string{"_format", "_pretty", "_summary", "_elements"}, p.Name)
}

// postedParameters reads a Parameters resource whose values are primitive, or references.
func postedParameters(body []byte) ([]smart.Parameter, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var resource struct {
		ResourceType string
		Parameter    []map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &resource); err != nil || resource.ResourceType != "Parameters" {
		return nil, message.Invalid(errParameters, "The body is no Parameters resource.")
	}
	var list []smart.Parameter
	for _, members := range resource.Parameter {
		p, err := postedParameter(members)
		if err != nil {
			return nil, message.Invalid(fmt.Errorf("%w: %w", errParameters, err), "A parameter in the body has no primitive value.")
		}
		list = append(list, p)
	}
	return list, nil
}

func postedParameter(members map[string]json.RawMessage) (p smart.Parameter, err error) {
	if len(members) != 2 {
		return p, errors.New("more members than name and value")
	}
	for member, text := range members {
		switch {
		case member == "name":
			err = json.Unmarshal(text, &p.Name)
		case member == "valueReference":
			var reference struct{ Reference string }
			err = json.Unmarshal(text, &reference)
			p.Value = reference.Reference
		case strings.HasPrefix(member, "value"):
			p.Value, err = primitive(text)
		default:
			err = errors.New("no value")
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// primitive is a string, number or boolean as a query writes it.
func primitive(text []byte) (s string, err error) {
	switch text[0] {
	case '"':
		err = json.Unmarshal(text, &s)
		return s, err
	case '{', '[', 'n':
		return "", errors.New("no primitive value")
	}
	return string(text), nil
}
