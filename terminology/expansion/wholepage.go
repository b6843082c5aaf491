package expansion

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// maxNesting bounds the nesting of entries.
const maxNesting = 64

// wholePage is a page being read.
type wholePage struct {
	builder       *WholeBuilder
	total, offset int
	entries       []wholeEntry
	keys          []string
	depth         int
}

// keep keeps a member of the first page as it is.
func (x *wholePage) keep(r *fhirjson.Reader, name string, list *[]fhirjson.Member) error {
	if x.builder.pages > 0 {
		return r.Skip()
	}
	_, err := r.Keep(name, list)
	return err
}

func (x *wholePage) member(r *fhirjson.Reader, name string) error {
	switch name {
	case "identifier":
		return r.Skip()
	case "total":
		return x.number(r, &x.total)
	case "offset":
		return x.number(r, &x.offset)
	case "contains":
		return r.Array(func() error { return x.entry(r) })
	case "parameter":
		return r.Array(func() error { return x.parameter(r) })
	case "extension":
		return x.extensions(r)
	}
	return x.keep(r, name, &x.builder.whole.expansion)
}

func (x *wholePage) number(r *fhirjson.Reader, n *int) error {
	text, err := r.Value('0')
	if err != nil {
		return err
	}
	value, err := parameters.Number(&parameters.Input{Name: "number", Value: string(text)})
	if err == nil {
		*n = *value
	}
	return err
}

// extensions reads the extensions of the expansion. One says that entries were left out.
func (x *wholePage) extensions(r *fhirjson.Reader) error {
	raw, err := r.Value(0)
	if err != nil {
		return err
	}
	if bytes.Contains(raw, []byte("valueset-toocostly")) {
		return errNotWhole
	}
	if value := raw.Clone(); x.builder.pages == 0 {
		x.builder.whole.expansion = append(x.builder.whole.expansion, fhirjson.Member{Name: "extension", Value: value})
	}
	return nil
}

// paging are the parameters that differ between pages.
var paging = []string{"filter", "offset", "count"}

func (x *wholePage) parameter(r *fhirjson.Reader) error {
	value, err := r.CompactValue('{')
	if err != nil {
		return err
	}
	var in parameters.Input
	inner := fhirjson.ReaderOf(value)
	if err := inner.Object(func(name []byte) error { return in.Member(inner, name, 0) }); err != nil {
		return err
	}
	b := x.builder
	if in.Name == "displayLanguage" {
		b.language = in.Value
	}
	if b.pages == 0 && !slices.Contains(paging, in.Name) && (!b.Terse || in.Name != "includeDesignations") {
		b.whole.parameters = append(b.whole.parameters, value)
	}
	return nil
}

// entry reads one of expansion.contains, then those nested in it.
func (x *wholePage) entry(r *fhirjson.Reader) error {
	raw, err := r.Value('{')
	if err != nil {
		return err
	}
	var e wholeEntry
	var key entryKey
	within, err := x.members(&e, &key, raw.Clone())
	if err != nil {
		return err
	}
	if len(e.code) == 0 {
		return fmt.Errorf("%w: an entry without a code", errNotWhole) // a heading, which only a tree can show
	}
	e.raw = slices.Clip(append(e.raw, '}'))
	x.builder.whole.size += 2*len(raw) + 128
	x.entries = append(x.entries, e)
	x.keys = append(x.keys, key.system+"\x00"+key.version+"\x00"+string(e.code))
	if within == nil {
		return nil
	}
	if x.depth++; x.depth > maxNesting {
		return fmt.Errorf("%w: entries within each other more than %d deep", errNotWhole, maxNesting)
	}
	defer func() { x.depth-- }()
	nested := fhirjson.ReaderOf(within)
	return nested.Array(func() error { return x.entry(nested) })
}

// entryKey identifies an entry together with its code.
type entryKey struct{ system, version string }

// members reads the members of an entry, and returns the entries nested in it.
func (x *wholePage) members(e *wholeEntry, key *entryKey, raw jsontext.Value) (within jsontext.Value, err error) {
	r := fhirjson.NewReader(bytes.NewReader(raw))
	err = r.Object(func(name []byte) error {
		member := string(name)
		value, err := r.Value(0)
		if err != nil {
			return err
		}
		if member == "contains" {
			within = value.Clone()
			return nil
		}
		x.builder.designations = x.builder.designations || member == "designation"
		if member != "designation" || !x.builder.Terse {
			e.keep(member, value)
		}
		return e.read(fhirjson.ReaderOf(value), member, key)
	})
	return within, err
}

func (e *wholeEntry) keep(name string, value jsontext.Value) {
	open := byte(',')
	if len(e.raw) == 0 {
		open = '{'
	}
	value = value.Clone()
	_ = value.Compact() // it was read, so it is JSON
	e.raw = fhirjson.Member{Name: name, Value: value}.Append(append(e.raw, open))
}

// read reads a member that the search needs.
func (e *wholeEntry) read(r *fhirjson.Reader, name string, key *entryKey) error {
	var text string
	switch name {
	case "system":
		return r.ReadString(&key.system)
	case "version":
		return r.ReadString(&key.version)
	case "inactive":
		return r.ReadBool(&e.inactive)
	case "abstract":
		return r.ReadBool(&e.abstract)
	case "code":
		err := r.ReadString(&text)
		e.code = []byte(text)
		return err
	case "display":
		err := r.ReadString(&text)
		e.display = []byte(text)
		e.texts = append(e.texts, codesystem.Text{Value: e.display, Display: true})
		return err
	case "designation":
		return r.Array(func() error { return e.designation(r) })
	}
	return nil
}

// designation reads one of contains.designation. A display in another language always counts for the search.
func (e *wholeEntry) designation(r *fhirjson.Reader) error {
	var t codesystem.Text
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "language":
			return r.ReadString(&t.Language)
		case "value":
			text, err := r.Text()
			t.Value = bytes.Clone(text)
			return err
		case "use":
			return r.Strings(fhirjson.String{Name: "system", Into: &t.Use.System}, fhirjson.String{Name: "code", Into: &t.Use.Code})
		}
		return r.Skip()
	})
	t.Display = t.Use.System == codesystem.PreferredForLanguage.System && t.Use.Code == codesystem.PreferredForLanguage.Code
	e.texts = append(e.texts, t)
	return err
}

// WholeBuilder makes a [Whole] of the pages of an expansion. It fails if they contradict each other, as pages of
// servers without a stable total or order do.
type WholeBuilder struct {
	// Languages is the list of languages that displays were asked for in, used if the pages do not say.
	Languages string

	// Terse leaves designations out of the answers; they are still searched.
	Terse bool

	whole        Whole
	total        int // by the pages; -1 if unknown
	pages        int
	seen         map[string]bool
	designations bool
	done         bool
	language     string
}

// ErrContradiction is wrapped in the error for pages that contradict each other.
var ErrContradiction = errors.New("the pages of the expansion contradict each other")

var errNotWhole = errors.New("the expansion is not whole")
