package terminology

import (
	"crypto/sha256"
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
	case "cache-id":
		p.cacheID = in.value
	case "tx-resource":
		if in.resource != nil {
			p.resources = append(p.resources, in.resource)
		}
	default:
		return p.Query.set(in)
	}
	return true, nil
}
