package definitions

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// StoredExpansion identifies the expansion of a value set without compose, as downloads of VSAC and measure bundles have.
// Its codes are in Include, so that it is searched and validated like any other value set.
type StoredExpansion struct {
	Identifier, Timestamp string // members of these names
}

// storedExpansion reads ValueSet.expansion.
type storedExpansion struct {
	builder *valueSetBuilder
	StoredExpansion
	include []ConceptSet
	total   int    // ValueSet.expansion.total; -1 if absent
	partial string // reason why codes may be missing; "" if complete
	depth   int
}

// maxStoredDepth bounds the nesting of entries.
const maxStoredDepth = 64

var errStoredDepth = errors.New("entries of the expansion are nested more than " + strconv.Itoa(maxStoredDepth) + " deep")

// expansion reads a stored expansion. A value set with compose ignores it.
func (b *valueSetBuilder) expansion(r *fhirjson.Reader) error {
	if b.vs.Composed {
		return r.Skip()
	}
	s := &storedExpansion{builder: b, total: -1}
	b.stored = s
	return r.ObjectWith(func(name []byte) error { return s.member(r, string(name)) },
		fhirjson.String{Name: "identifier", Into: &s.Identifier}, fhirjson.String{Name: "timestamp", Into: &s.Timestamp})
}

// adopt makes the codes of a complete stored expansion those of a value set without compose.
func (s *storedExpansion) adopt(vs *ValueSet) {
	if s == nil || vs.Composed {
		return
	}
	count := 0
	for _, set := range s.include {
		count += int(set.Last - set.First)
	}
	if s.partial == "" && s.total >= 0 && s.total != count {
		s.partial = "it has " + strconv.Itoa(count) + " of " + strconv.Itoa(s.total) + " codes"
	}
	if vs.Partial = s.partial; s.partial != "" {
		return
	}
	vs.Composed, vs.Include, vs.Stored = true, s.include, &s.StoredExpansion
}

func (s *storedExpansion) member(r *fhirjson.Reader, name string) error {
	switch name {
	case "contains":
		return r.ArrayOf(shortPart, func() error { return s.entry(r) })
	case "total", "offset":
		text, err := r.Value('0')
		n, invalid := strconv.Atoi(string(text))
		switch {
		case err != nil || invalid != nil:
		case name == "total":
			s.total = n
		case n > 0:
			s.partial = "it begins at an offset"
		}
		return err
	case "parameter":
		return r.Array(func() error { return s.parameter(r) })
	case "extension":
		return s.extensions(r)
	case "modifierExtension":
		return s.builder.vs.modifiers(r)
	}
	return r.Skip()
}

// parameter reads an entry of expansion.parameter. Some parameters exclude codes.
func (s *storedExpansion) parameter(r *fhirjson.Reader) error {
	var in parameters.Input
	err := r.Object(func(name []byte) error { return in.Member(r, name, 0) })
	switch {
	case in.Name == "filter" && in.Value != "", in.Name == "limitedExpansion" && in.Value == "true", in.Name == "exclude-system":
		s.partial = "it was made with the parameter " + in.Name
	case in.Name == "count" && s.total < 0:
		s.partial = cmp.Or(s.partial, "it was made with the parameter count and has no total")
	}
	return err
}

func (s *storedExpansion) extensions(r *fhirjson.Reader) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		if kind := strings.TrimPrefix(x.URL, fhirjson.ExtensionBase); (kind == "valueset-toocostly" || kind == "valueset-unclosed") && x.Value != "false" {
			s.partial = "it has the extension " + kind
		}
	}
	return err
}

// storedEntry is one of expansion.contains.
type storedEntry struct {
	system, version string
	code, display   codesystem.TextRef
	flags           codesystem.Flags
	designations    jsontext.Value
	within          jsontext.Value
}

// entry reads an entry of expansion.contains and its nested entries. An entry without a code is a heading.
func (s *storedExpansion) entry(r *fhirjson.Reader) error {
	e, err := s.read(r)
	if err != nil {
		return err
	}
	rows := &s.builder.library.rows
	if len(rows.Texts.At(e.code)) > 0 {
		if err := s.add(r, &e); err != nil {
			return err
		}
	}
	if e.within == nil {
		return nil
	}
	if s.depth++; s.depth > maxStoredDepth {
		return errStoredDepth
	}
	defer func() { s.depth-- }()
	inner := r.Inner(e.within)
	return inner.ArrayOf(shortPart, func() error { return s.entry(inner) })
}

func (s *storedExpansion) read(r *fhirjson.Reader) (e storedEntry, err error) {
	texts := &s.builder.library.rows.Texts
	flag := func(f codesystem.Flags) error {
		var is bool
		err := r.ReadBool(&is)
		if is {
			e.flags |= f
		}
		return err
	}
	err = r.Object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.ReadName(&e.system)
		case "version":
			return r.ReadName(&e.version)
		case "code":
			return texts.Read(r, &e.code)
		case "display":
			return texts.Read(r, &e.display)
		case "abstract":
			return flag(codesystem.FlagAbstract)
		case "inactive":
			return flag(codesystem.FlagInactive)
		case "modifierExtension":
			return s.builder.vs.modifiers(r)
		case "designation":
			value, err := r.Value('[')
			e.designations = value.Clone()
			return err
		case "contains":
			value, err := r.Value('[')
			e.within = value.Clone()
			return err
		}
		return r.Skip()
	})
	return e, err
}

// add adds a row for an entry, to the last include if that has the same code system.
func (s *storedExpansion) add(r *fhirjson.Reader, e *storedEntry) error {
	rows := &s.builder.library.rows
	row := rows.end()
	if e.designations != nil {
		inner := r.Inner(e.designations)
		if err := inner.Array(func() error { return rows.Designation(inner, &rows.Texts, row) }); err != nil {
			return err
		}
	}
	rows.Code, rows.display = append(rows.Code, e.code), append(rows.display, e.display)
	rows.system = append(rows.system, s.builder.library.Systems.internSystem(e.system))
	if e.flags != 0 {
		if rows.flags == nil {
			rows.flags = make(map[uint32]codesystem.Flags)
		}
		rows.flags[row] = e.flags
	}
	if e.system == "" {
		s.partial = "an entry has no system"
	}
	last := len(s.include) - 1
	if last < 0 || s.include[last].System != e.system || s.include[last].Version != e.version {
		s.include = append(s.include, ConceptSet{System: e.system, Version: e.version, Enumerated: true, Expanded: true, First: row})
		last++
	}
	s.include[last].Last = row + 1
	return nil
}
