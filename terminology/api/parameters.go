package api

import (
	"crypto/sha256"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// maxParameterLength is in bytes.
const maxParameterLength = 8 << 10

// parameters are the parameters of a request.
type common struct {
	expansion.Query
	resources []jsontext.Value // tx-resource
	cacheID   string
	cacheKey  [sha256.Size]byte
	cached    bool // there is a cacheKey
	get       bool // by GET, the answer is a list unless a tree is asked for, and always has an offset (interface.md)
}

// read reads the parameters. Unknown ones are ignored, as R4 says for operations.
func (p *common) read(inputs []parameters.Input) error {
	p.Given = inputs
	for i := range inputs {
		in := &inputs[i]
		if len(in.Value) > maxParameterLength {
			return outcome.BadRequest("too-long", "a parameter may be at most %d bytes long", maxParameterLength)
		}
		if !isText(in.Value) {
			return outcome.BadRequest("invalid", "a parameter holds a character that no FHIR string has")
		}
		known, err := p.set(in)
		if err != nil {
			return err
		}
		if known && !p.isRepeatable(in.Name) && parameters.Find(inputs[:i], in.Name) != nil {
			return outcome.BadRequest("invalid", "the parameter %s may be given only once", in.Name)
		}
	}
	return nil
}

// isRepeatable reports whether a parameter may occur more than once. Any other that does is an error, since nothing says
// which one counts.
func (p *common) isRepeatable(name string) bool {
	return p.List(name) != nil || name == "tx-resource" || name == "_elements"
}

// isText reports whether a value can be a FHIR string: UTF-8 without control characters except tab, line feed and
// carriage return (R4 §2.24.0.1).
func isText(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r'
	})
}

// set reads one parameter and reports whether it is known.
func (p *common) set(in *parameters.Input) (known bool, err error) {
	switch in.Name {
	case "cache-id":
		p.cacheID = in.Value
	case "tx-resource":
		if in.Resource != nil {
			p.resources = append(p.resources, in.Resource)
		}
	default:
		return p.Query.Set(in)
	}
	return true, nil
}
