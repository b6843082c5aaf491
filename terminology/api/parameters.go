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

// Parameters are those that all operations share, of one request. Make them with [Call.Parameters].
type Parameters struct {
	expansion.Query

	// Resources are definitions sent with the request (tx-resource).
	Resources []jsontext.Value

	cacheID  string
	cacheKey [sha256.Size]byte
	cached   bool // there is a cacheKey
	get      bool // by GET, the answer is a list unless a tree is asked for, and always has an offset (interface.md)
}

// read reads the parameters. Unknown ones are ignored, as R4 says for operations.
func (p *Parameters) read(inputs []parameters.Input) error {
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
func (p *Parameters) isRepeatable(name string) bool {
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
func (p *Parameters) set(in *parameters.Input) (known bool, err error) {
	switch in.Name {
	case "cache-id":
		p.cacheID = in.Value
	case "tx-resource":
		if in.Resource != nil {
			p.Resources = append(p.Resources, in.Resource)
		}
	default:
		return p.Query.Set(in)
	}
	return true, nil
}

// Coding reads a concept from a Coding, such as coding or codingA for the suffix A, or from a code with the parameters system
// and version (R4 CodeSystem/$lookup, $subsumes).
func (p *Parameters) Coding(suffix string) (c parameters.Coding, err error) {
	code, whole := "code"+suffix, "coding"+suffix
	if in := parameters.Find(p.Given, whole); in != nil {
		if p.Sent(code) {
			return c, outcome.BadRequest("invalid", "of the parameters %s and %s only one may be given", code, whole)
		}
		return parameters.ParseCoding(in.Complex, whole)
	}
	for i := range p.Given {
		switch in := &p.Given[i]; in.Name {
		case code:
			c.Code = in.Value
		case "system":
			c.System = in.Value
		case "version":
			c.Version = in.Value
		}
	}
	return c, nil
}
