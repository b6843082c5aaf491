package definitions

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// ValueSet is a parsed ValueSet, with its compose prepared for expansion.
type ValueSet struct {
	Definition
	compose
	Key          string             // cache key for expansions: url|version, or the reference of an implicit value set
	Container    *ValueSet          // containing value set, or nil
	Supplements  []string           // canonicals of supplements from the extension valueset-supplement
	Defaults     []parameters.Input // default $expand parameters from the extension valueset-expansion-parameter
	Contained    []*ValueSet        // contained value sets
	CodeSystems  []uint32           // contained code systems, as indexes in SystemTable.CodeSystems
	OtherMembers []fhirjson.Member  // compose and all other members, unchanged
	Stored       *StoredExpansion   // stored expansion that Include was built from; nil: built from compose
	Partial      string             // reason why a stored expansion without compose may be incomplete
}

// compose is ValueSet.compose.
type compose struct {
	Composed         bool   // whether the value set has a compose
	ActiveOnly       bool   // inactive is false: exclude inactive codes
	LockedDate       string // date as of which code systems are used
	Include, Exclude []ConceptSet
}

// DisplayName returns the canonical for messages, or "(unidentified)", as other servers write, for a value set without
// a URL in a request.
func (vs *ValueSet) DisplayName() string {
	return cmp.Or(vs.Canonical(), "(unidentified)")
}

// ConceptSet is an entry of ValueSet.compose.include or exclude.
type ConceptSet struct {
	System, Version string   // code system
	Enumerated      bool     // has concept: the rows from First up to Last
	Expanded        bool     // part of a stored expansion: its codes are valid even if the loaded code system lacks them
	First, Last     uint32   // rows in listed
	Filters         []Filter // filters that must all match
	ValueSets       []string // canonicals of imported value sets
}

// Filter is an entry of ValueSet.compose.include.filter.
type Filter struct {
	Property, Op, Value string // members of the same names
}

// standard returns the value set's own default for an $expand parameter, or "".
func (vs *ValueSet) standard(name string) string {
	if in := parameters.Find(vs.Defaults, name); in != nil {
		return in.Value
	}
	return ""
}

// listed stores the concepts enumerated by all value sets. Row 0 is unused. Codes are text because their code system
// may not be loaded.
type listed struct {
	first   uint32 // of an overlay: number of the first row
	Texts   codesystem.Texts
	Code    []codesystem.TextRef
	display []codesystem.TextRef        // 0 if the value set lists no display
	system  []uint32                    // index in SystemTable.List
	flags   map[uint32]codesystem.Flags // flags of stored expansion entries by row
	codesystem.ConceptReader
}

// end returns the number of the next row.
func (t *listed) end() uint32 { return t.first + uint32(len(t.Code)) }

// newListed returns an empty table that starts at the given row number.
func newListed(first uint32) listed {
	t := listed{first: first, Code: make([]codesystem.TextRef, 1), display: make([]codesystem.TextRef, 1), system: make([]uint32, 1)}
	t.Reset()
	return t
}

// Row returns the table of d or its bases that contains a row, and the position of the row in that table.
func (d *Set) Row(row uint32) (*listed, uint32) {
	for d.Base != nil && row < d.rows.first {
		d = d.Base
	}
	return &d.rows, row - d.rows.first
}

func (t *listed) designationsOf(row uint32) []codesystem.DesignationRow {
	return ownedBy(t.ConceptReader.Designations, row, func(d codesystem.DesignationRow) uint32 { return d.Owner })
}

func (t *listed) ExtensionsOf(row uint32) []codesystem.ExtensionRow {
	return ownedBy(t.ConceptReader.Extensions, row, func(x codesystem.ExtensionRow) uint32 { return x.Owner })
}

// ownedBy returns the elements of an owner in a list sorted by owner.
func ownedBy[row any](list []row, owner uint32, of func(row) uint32) []row {
	compare := func(r row, owner uint32) int { return int(of(r)) - int(owner) }
	from, found := slices.BinarySearchFunc(list, owner, compare)
	if !found {
		return nil
	}
	to := from
	for to < len(list) && of(list[to]) == owner {
		to++
	}
	return list[from:to]
}

type valueSetBuilder struct {
	library *Set
	vs      ValueSet
	systems []*CodeSystem // contained code systems
	stored  *storedExpansion
	depth   int // nesting of contained resources
}

// member reads a member of a ValueSet. Most members are also kept unchanged for includeDefinition.
func (b *valueSetBuilder) member(r *fhirjson.Reader, name string) error {
	if known, err := b.vs.Definition.member(r, name); known {
		return err
	}
	if name == "expansion" {
		return b.expansion(r)
	}
	if isLeftOut(name) {
		return r.Skip()
	}
	inner, err := r.Keep(name, &b.vs.OtherMembers)
	if err != nil {
		return err
	}
	return b.known(inner, name)
}

// known reads a member that expansion uses.
func (b *valueSetBuilder) known(r *fhirjson.Reader, name string) error {
	switch name {
	case "compose":
		return b.compose(r)
	case "contained":
		return r.Array(func() error { return b.contained(r) })
	case "extension":
		return b.extensions(r)
	case "modifierExtension", "implicitRules":
		return b.vs.modifiers(r)
	}
	return nil
}

// extensions reads the extensions of a value set or its compose.
func (b *valueSetBuilder) extensions(r *fhirjson.Reader) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		switch x.URL {
		case fhirjson.ExtensionBase + "structuredefinition-standards-status":
			b.vs.standardsStatus = x.Value
		case fhirjson.ExtensionBase + "valueset-supplement":
			b.vs.Supplements = append(b.vs.Supplements, x.Value)
		case fhirjson.ExtensionBase + "valueset-expansion-parameter", toolsExtensionBase + "valueset-expansion-parameter":
			b.vs.Defaults = append(b.vs.Defaults, parameters.Input{Name: x.Part("name"), Value: x.Part("value")})
		}
	}
	return err
}

// toolsExtensionBase is the URL prefix of extensions that are not yet part of FHIR.
const toolsExtensionBase = "http://hl7.org/fhir/tools/StructureDefinition/"

// contained reads a contained resource. Types other than ValueSet and CodeSystem are ignored.
func (b *valueSetBuilder) contained(r *fhirjson.Reader) error {
	raw, err := r.Value('{')
	if err != nil || b.depth > 0 {
		return err
	}
	if err := bring(b.library); err != nil {
		return err
	}
	if err := r.Shortage().Add(int64(len(raw)), shortDefinition); err != nil {
		return err
	}
	kind, err := fhirjson.ResourceType(raw)
	x := r.Inner(raw.Clone())
	switch {
	case err != nil:
		return err
	case kind == "ValueSet":
		return b.containedValueSet(x)
	case kind == "CodeSystem":
		return b.containedCodeSystem(x)
	}
	return nil
}

func (b *valueSetBuilder) containedValueSet(r *fhirjson.Reader) error {
	inner := valueSetBuilder{library: b.library, depth: b.depth + 1}
	err := r.Object(func(name []byte) error { return inner.member(r, string(name)) })
	inner.stored.adopt(&inner.vs)
	b.vs.Contained = append(b.vs.Contained, &inner.vs)
	return err
}

func (b *valueSetBuilder) containedCodeSystem(r *fhirjson.Reader) error {
	inner := codeSystemBuilder{usage: &b.library.Usage}
	inner.reset()
	if err := r.Object(func(name []byte) error { return inner.member(r, string(name)) }); err != nil {
		return err
	}
	cs, err := inner.build()
	b.systems = append(b.systems, cs)
	return err
}

// build returns the value set with its contained resources. A contained code system without a URL gets the value set's
// URL with its ID as the fragment.
func (b *valueSetBuilder) build() *ValueSet {
	vs := b.vs
	b.stored.adopt(&vs)
	for _, inner := range vs.Contained {
		inner.Container = &vs
		if vs.URL != "" && inner.ID != "" {
			inner.Key = vs.URL + "|" + vs.Version + "#" + inner.ID
		}
	}
	for _, cs := range b.systems {
		if cs.URL == "" {
			cs.URL = vs.URL + "#" + cs.ID
		}
		vs.CodeSystems = append(vs.CodeSystems, b.library.Systems.addContained(cs))
	}
	return &vs
}

func (b *valueSetBuilder) compose(r *fhirjson.Reader) error {
	b.vs.Composed = true
	return r.Object(func(name []byte) error {
		switch string(name) {
		case "inactive":
			var inactive bool
			err := r.ReadBool(&inactive)
			b.vs.ActiveOnly = !inactive
			return err
		case "lockedDate":
			return r.ReadString(&b.vs.LockedDate)
		case "include":
			return r.ArrayOf(shortPart, func() error { return b.conceptSet(r, &b.vs.Include) })
		case "exclude":
			return r.ArrayOf(shortPart, func() error { return b.conceptSet(r, &b.vs.Exclude) })
		case "extension":
			return b.extensions(r)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
}

// conceptSet reads an entry of compose.include or exclude and appends it to list.
func (b *valueSetBuilder) conceptSet(r *fhirjson.Reader, list *[]ConceptSet) error {
	var set ConceptSet
	rows := &b.library.rows
	set.First = rows.end()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.ReadName(&set.System)
		case "version":
			return r.ReadName(&set.Version)
		case "concept":
			set.Enumerated = true
			return r.Array(func() error { return b.concept(r) })
		case "filter":
			return r.Array(func() error { return b.filter(r, &set) })
		case "valueSet":
			return r.Array(func() error {
				set.ValueSets = append(set.ValueSets, "")
				return r.ReadString(&set.ValueSets[len(set.ValueSets)-1])
			})
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	set.Last = rows.end()
	if set.Enumerated {
		system := b.library.Systems.internSystem(set.System)
		for range set.Last - set.First {
			rows.system = append(rows.system, system)
		}
	}
	*list = append(*list, set)
	return err
}

func (b *valueSetBuilder) filter(r *fhirjson.Reader, set *ConceptSet) error {
	var f Filter
	var later string
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "_op":
			return r.Object(func(name []byte) error {
				if string(name) != "extension" {
					return r.Skip()
				}
				return b.laterOperator(r, &later)
			})
		case "extension":
			return b.laterOperator(r, &later)
		case "property":
			return r.ReadString(&f.Property)
		case "op":
			return r.ReadString(&f.Op)
		case "value":
			return r.ReadString(&f.Value)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	f.Op = cmp.Or(later, f.Op)
	set.Filters = append(set.Filters, f)
	return err
}

// filterExtensions is the URL suffix of the extensions for filter features of later FHIR releases: op (an operator) and
// filter (a nested filter).
const filterExtensions = "/StructureDefinition/extension-ValueSet.compose.include.filter."

// laterOperator reads an operator of a later FHIR release from the extensions of a filter or its operator. Nested
// filters are not supported, so value sets that have them must not be used.
func (b *valueSetBuilder) laterOperator(r *fhirjson.Reader, op *string) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		switch release, element, _ := strings.Cut(x.URL, filterExtensions); {
		case !strings.HasPrefix(release, "http://hl7.org/fhir/"):
		case element == "op":
			*op = cmp.Or(x.Value, "unknown")
		case element == "filter":
			b.vs.modifier = "the extension " + x.URL
		}
	}
	return err
}

func (b *valueSetBuilder) concept(r *fhirjson.Reader) error {
	var code, display codesystem.TextRef
	rows := &b.library.rows
	row := rows.end()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "code":
			return rows.Texts.Read(r, &code)
		case "display":
			return rows.Texts.Read(r, &display)
		case "designation":
			return r.Array(func() error { return rows.Designation(r, &rows.Texts, row) })
		case "extension":
			return rows.Extension(r, &rows.Texts, row)
		case "modifierExtension":
			return b.vs.modifiers(r)
		default:
			return r.Skip()
		}
	})
	if err == nil && len(rows.Texts.At(code)) == 0 {
		err = fmt.Errorf("%s: concept without a code", r.Pointer())
	}
	rows.Code = append(rows.Code, code)
	rows.display = append(rows.display, display)
	return err
}

// StoredExpansion identifies the expansion of a value set without compose, as in VSAC downloads and measure bundles.
// Its codes are copied to Include, so that search and validation work as for other value sets.
type StoredExpansion struct {
	Identifier, Timestamp string // members of the same names
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

// maxStoredDepth is the maximum nesting of entries.
const maxStoredDepth = 64

var errStoredDepth = errors.New("entries of the expansion are nested more than " + strconv.Itoa(maxStoredDepth) + " deep")

// expansion reads a stored expansion. It is ignored if the value set has a compose.
func (b *valueSetBuilder) expansion(r *fhirjson.Reader) error {
	if b.vs.Composed {
		return r.Skip()
	}
	s := &storedExpansion{builder: b, total: -1}
	b.stored = s
	return r.ObjectWith(func(name []byte) error { return s.member(r, string(name)) },
		fhirjson.String{Name: "identifier", Into: &s.Identifier}, fhirjson.String{Name: "timestamp", Into: &s.Timestamp})
}

// adopt copies the codes of a complete stored expansion to a value set without compose.
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

// parameter reads an entry of expansion.parameter. Some parameters restrict the expansion and make it incomplete.
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

// storedEntry is an entry of expansion.contains.
type storedEntry struct {
	system, version string
	code, display   codesystem.TextRef
	flags           codesystem.Flags
	designations    jsontext.Value
	within          jsontext.Value
}

// entry reads an entry of expansion.contains and its nested entries. Entries without a code are headings.
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

// add adds a row for an entry, extending the last include if it has the same code system.
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
