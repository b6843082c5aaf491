package terminology

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxParameterLength is in bytes.
const maxParameterLength = 8 << 10

// parameters are the parameters of a request.
type parameters struct {
	Query
	resources []jsontext.Value // tx-resource
	cacheID   string
	cacheKey  [sha256.Size]byte
	cached    bool // there is a cacheKey
	get       bool // by GET, the answer is a list unless a tree is asked for, and always has an offset (interface.md)
}

// read reads the parameters. Unknown ones are ignored, as R4 says for operations.
func (p *parameters) read(inputs []input) error {
	p.given = inputs
	for i := range inputs {
		in := &inputs[i]
		if len(in.value) > maxParameterLength {
			return badRequest("too-long", "a parameter may be at most %d bytes long", maxParameterLength)
		}
		if !isText(in.value) {
			return badRequest("invalid", "a parameter holds a character that no FHIR string has")
		}
		known, err := p.set(in)
		if err != nil {
			return err
		}
		if known && !p.isRepeatable(in.name) && find(inputs[:i], in.name) != nil {
			return badRequest("invalid", "the parameter %s may be given only once", in.name)
		}
	}
	return nil
}

// isRepeatable reports whether a parameter may occur more than once. Any other that does is an error, since nothing says
// which one counts.
func (p *parameters) isRepeatable(name string) bool {
	return p.list(name) != nil || name == "tx-resource" || name == "_elements"
}

// isText reports whether a value can be a FHIR string: UTF-8 without control characters except tab, line feed and
// carriage return (R4 §2.24.0.1).
func isText(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r'
	})
}

// set reads one parameter and reports whether it is known.
func (p *parameters) set(in *input) (known bool, err error) {
	switch in.name {
	case "url":
		p.URL = in.value
	case "valueSet":
		p.ValueSet = in.resource
		if in.resource == nil {
			return true, badRequest("invalid", "the parameter valueSet must be a resource, which only a POST can give")
		}
	case "valueSetVersion":
		p.Version = in.value
	case "context":
		p.Context = in.value
	case "contextDirection": // has no effect: a binding's codes are both those to choose from and those to expect
		if in.value != "incoming" && in.value != "outgoing" {
			return true, badRequest("invalid", "the parameter contextDirection must be incoming or outgoing")
		}
	case "filter":
		if strings.TrimSpace(in.value) != "" { // a blank one is none, and could not be echoed: FHIR has no empty strings
			p.Filter = in.value
		}
	case "date":
		p.Date = in.value
	case "offset":
		p.Offset, err = number(in)
	case "count":
		p.Count, err = number(in)
	case "displayLanguage":
		p.Language.Display, err = in.value, checkLanguage(in.value)
	case "cache-id":
		p.cacheID = in.value
	case "tx-resource":
		if in.resource != nil {
			p.resources = append(p.resources, in.resource)
		}
	default:
		return p.setOther(in)
	}
	return true, err
}

// setOther reads a parameter that is a list, a boolean, _summary or _elements.
func (p *parameters) setOther(in *input) (known bool, err error) {
	if list := p.list(in.name); list != nil {
		*list = append(*list, in.value)
		return true, p.Versions.check(in)
	}
	if c := p.choice(in.name); c != nil {
		return true, c.set(in)
	}
	return p.subset.set(in)
}

// number reads a non-negative integer.
func number(in *input) (*int, error) {
	// Bounded by 32 bits as FHIR's integer is, so that offset + count cannot overflow.
	n, err := strconv.ParseUint(in.value, 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return nil, badRequest("invalid", "the parameter %s is too large", in.name)
	}
	if err != nil {
		return nil, badRequest("invalid", "the parameter %s must be a whole number from 0 up", in.name)
	}
	result := int(n)
	return &result, nil
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
