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

// ValueSet is a ValueSet resource with its compose prepared for expansion.
type ValueSet struct {
	Definition
	compose
	Key           string             // cache key for expansions: url|version, or the reference of an implicit value set
	Container     *ValueSet          // containing value set, or nil
	Supplements   []string           // canonicals of supplements from the extension valueset-supplement
	Defaults      []parameters.Input // default $expand parameters from the extension valueset-expansion-parameter
	Contained     []*ValueSet        // contained value sets
	CodeSystems   []uint32           // contained code systems, as indexes in SystemTable.CodeSystems
	OtherMembers  []fhirjson.Member  // all members needed to return the definition, including compose, unchanged
	Stored        *StoredExpansion   // stored expansion that Include was created from; nil if Include comes from compose
	PartialReason string             // why a stored expansion may be incomplete; "" if it is complete or there is a compose
}

// compose is ValueSet.compose.
type compose struct {
	HasCompose       bool   // whether the value set has a compose
	ActiveOnly       bool   // compose.inactive is false: exclude inactive codes
	LockedDate       string // date as of which code systems are used
	Include, Exclude []ConceptSet
}

// DisplayName returns the canonical for messages. For a value set without a URL it returns "(unidentified)", like other
// servers.
func (vs *ValueSet) DisplayName() string {
	return cmp.Or(vs.Canonical(), "(unidentified)")
}

// ConceptSet is an entry of ValueSet.compose.include or exclude.
type ConceptSet struct {
	System, Version     string   // code system and version
	IsEnumerated        bool     // whether concept is present; its rows are [FirstRow, EndRow)
	FromStoredExpansion bool     // from a stored expansion: codes are valid even if the loaded code system lacks them
	FirstRow, EndRow    uint32   // row numbers for [Set.TableOfRow]
	Filters             []Filter // filters, all of which must match
	ValueSets           []string // canonicals of imported value sets
}

// Filter is an entry of ValueSet.compose.include.filter.
type Filter struct {
	Property, Op, Value string // members with the same names
}

// defaultParameter returns the value set's own default for an $expand parameter, or "".
func (vs *ValueSet) defaultParameter(name string) string {
	if in := parameters.Find(vs.Defaults, name); in != nil {
		return in.Value
	}
	return ""
}

// listedConcepts stores the concepts that value sets enumerate. Row 0 is unused. Codes are stored as text because their code
// system may not be loaded.
type listedConcepts struct {
	firstRow uint32 // number of the first row; 0 unless the Set is an overlay
	Texts    codesystem.Texts
	Code     []codesystem.TextRef
	display  []codesystem.TextRef        // zero if the value set specifies no display
	system   []uint32                    // index in SystemTable.List
	flags    map[uint32]codesystem.Flags // flags by row, for entries of stored expansions
	codesystem.ConceptReader
}

// nextRow returns the number of the next row.
func (t *listedConcepts) nextRow() uint32 { return t.firstRow + uint32(len(t.Code)) }

// newListedConcepts returns an empty table that starts at the given row number.
func newListedConcepts(first uint32) listedConcepts {
	t := listedConcepts{firstRow: first, Code: make([]codesystem.TextRef, 1), display: make([]codesystem.TextRef, 1), system: make([]uint32, 1)}
	t.Reset()
	return t
}

// TableOfRow returns the table of d or its base Sets that contains a row, and the index of the row in that table.
func (d *Set) TableOfRow(row uint32) (*listedConcepts, uint32) {
	for d.Base != nil && row < d.rows.firstRow {
		d = d.Base
	}
	return &d.rows, row - d.rows.firstRow
}

func (t *listedConcepts) designationsOf(row uint32) []codesystem.DesignationRow {
	return rowsOf(t.ConceptReader.Designations, row, func(d codesystem.DesignationRow) uint32 { return d.Owner })
}

func (t *listedConcepts) ExtensionsOf(row uint32) []codesystem.ExtensionRow {
	return rowsOf(t.ConceptReader.Extensions, row, func(x codesystem.ExtensionRow) uint32 { return x.Owner })
}

// rowsOf returns the elements of list that belong to owner. The list must be sorted by owner, which of returns.
func rowsOf[row any](list []row, owner uint32, of func(row) uint32) []row {
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
	definitions *Set
	vs          ValueSet
	systems     []*CodeSystem // contained code systems
	stored      *expansionReader
	depth       int // nesting depth of contained resources
}

// readMember reads a member of a ValueSet. Most members are also stored unchanged for the includeDefinition parameter.
func (b *valueSetBuilder) readMember(r *fhirjson.Reader, name string) error {
	if known, err := b.vs.Definition.readMember(r, name); known {
		return err
	}
	if name == "expansion" {
		return b.readExpansion(r)
	}
	if isIgnored(name) {
		return r.Skip()
	}
	inner, err := r.ReadMember(name, &b.vs.OtherMembers)
	if err != nil {
		return err
	}
	return b.readUsedMember(inner, name)
}

// readUsedMember reads a member that is needed for expansion.
func (b *valueSetBuilder) readUsedMember(r *fhirjson.Reader, name string) error {
	switch name {
	case "compose":
		return b.readCompose(r)
	case "contained":
		return r.Array(func() error { return b.readContained(r) })
	case "extension":
		return b.readExtensions(r)
	case "modifierExtension", "implicitRules":
		return b.vs.readModifiers(r)
	}
	return nil
}

// readExtensions reads the extensions of a value set or its compose.
func (b *valueSetBuilder) readExtensions(r *fhirjson.Reader) error {
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

// readContained reads a contained resource. Types other than ValueSet and CodeSystem are ignored.
func (b *valueSetBuilder) readContained(r *fhirjson.Reader) error {
	raw, err := r.Value('{')
	if err != nil || b.depth > 0 {
		return err
	}
	if err := countRequestDefinition(b.definitions); err != nil {
		return err
	}
	if err := r.Overhead().Add(int64(len(raw)), smallDefinitionSize); err != nil {
		return err
	}
	kind, err := fhirjson.ResourceType(raw)
	x := r.Inner(raw.Clone())
	switch {
	case err != nil:
		return err
	case kind == "ValueSet":
		return b.readContainedValueSet(x)
	case kind == "CodeSystem":
		return b.readContainedCodeSystem(x)
	}
	return nil
}

func (b *valueSetBuilder) readContainedValueSet(r *fhirjson.Reader) error {
	inner := valueSetBuilder{definitions: b.definitions, depth: b.depth + 1}
	err := r.Object(func(name []byte) error { return inner.readMember(r, string(name)) })
	inner.stored.applyTo(&inner.vs)
	b.vs.Contained = append(b.vs.Contained, &inner.vs)
	return err
}

func (b *valueSetBuilder) readContainedCodeSystem(r *fhirjson.Reader) error {
	inner := codeSystemBuilder{usage: &b.definitions.Usage}
	inner.reset()
	if err := r.Object(func(name []byte) error { return inner.readMember(r, string(name)) }); err != nil {
		return err
	}
	cs, err := inner.build()
	b.systems = append(b.systems, cs)
	return err
}

// build returns the value set with its contained resources. A contained code system without a URL gets the URL of the value set
// with the contained ID as its fragment.
func (b *valueSetBuilder) build() *ValueSet {
	vs := b.vs
	b.stored.applyTo(&vs)
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
		vs.CodeSystems = append(vs.CodeSystems, b.definitions.Systems.addContained(cs))
	}
	return &vs
}

func (b *valueSetBuilder) readCompose(r *fhirjson.Reader) error {
	b.vs.HasCompose = true
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
			return r.ArrayOf(smallPartSize, func() error { return b.readConceptSet(r, &b.vs.Include) })
		case "exclude":
			return r.ArrayOf(smallPartSize, func() error { return b.readConceptSet(r, &b.vs.Exclude) })
		case "extension":
			return b.readExtensions(r)
		case "modifierExtension":
			return b.vs.readModifiers(r)
		default:
			return r.Skip()
		}
	})
}

// readConceptSet reads an entry of compose.include or exclude and appends it to list.
func (b *valueSetBuilder) readConceptSet(r *fhirjson.Reader, list *[]ConceptSet) error {
	var set ConceptSet
	rows := &b.definitions.rows
	set.FirstRow = rows.nextRow()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "system":
			return r.ReadName(&set.System)
		case "version":
			return r.ReadName(&set.Version)
		case "concept":
			set.IsEnumerated = true
			return r.Array(func() error { return b.readConcept(r) })
		case "filter":
			return r.Array(func() error { return b.readFilter(r, &set) })
		case "valueSet":
			return r.Array(func() error {
				set.ValueSets = append(set.ValueSets, "")
				return r.ReadString(&set.ValueSets[len(set.ValueSets)-1])
			})
		case "modifierExtension":
			return b.vs.readModifiers(r)
		default:
			return r.Skip()
		}
	})
	set.EndRow = rows.nextRow()
	if set.IsEnumerated {
		system := b.definitions.Systems.internSystem(set.System)
		for range set.EndRow - set.FirstRow {
			rows.system = append(rows.system, system)
		}
	}
	*list = append(*list, set)
	return err
}

func (b *valueSetBuilder) readFilter(r *fhirjson.Reader, set *ConceptSet) error {
	var f Filter
	var later string
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "_op":
			return r.Object(func(name []byte) error {
				if string(name) != "extension" {
					return r.Skip()
				}
				return b.readLaterOperator(r, &later)
			})
		case "extension":
			return b.readLaterOperator(r, &later)
		case "property":
			return r.ReadString(&f.Property)
		case "op":
			return r.ReadString(&f.Op)
		case "value":
			return r.ReadString(&f.Value)
		case "modifierExtension":
			return b.vs.readModifiers(r)
		default:
			return r.Skip()
		}
	})
	f.Op = cmp.Or(later, f.Op)
	set.Filters = append(set.Filters, f)
	return err
}

// filterExtensionSuffix is the URL suffix of the extensions for filters of later FHIR releases. It is followed by op (an
// operator) or filter (a nested filter).
const filterExtensionSuffix = "/StructureDefinition/extension-ValueSet.compose.include.filter."

// readLaterOperator reads an operator of a later FHIR release from the extensions of a filter or its operator. Nested filters
// are not supported, so value sets with nested filters are rejected.
func (b *valueSetBuilder) readLaterOperator(r *fhirjson.Reader, op *string) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		switch release, element, _ := strings.Cut(x.URL, filterExtensionSuffix); {
		case !strings.HasPrefix(release, "http://hl7.org/fhir/"):
		case element == "op":
			*op = cmp.Or(x.Value, "unknown")
		case element == "filter":
			b.vs.unsupportedModifier = "the extension " + x.URL
		}
	}
	return err
}

func (b *valueSetBuilder) readConcept(r *fhirjson.Reader) error {
	var code, display codesystem.TextRef
	rows := &b.definitions.rows
	row := rows.nextRow()
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "code":
			return rows.Texts.Read(r, &code)
		case "display":
			return rows.Texts.Read(r, &display)
		case "designation":
			return r.Array(func() error { return rows.ReadDesignation(r, &rows.Texts, row) })
		case "extension":
			return rows.ReadExtensions(r, &rows.Texts, row)
		case "modifierExtension":
			return b.vs.readModifiers(r)
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

// StoredExpansion identifies the stored expansion of a value set without compose, as in VSAC downloads and measure bundles. Its
// codes are copied to Include, so that search and validation work as for other value sets.
type StoredExpansion struct {
	Identifier, Timestamp string // members of the same names
}

// expansionReader reads ValueSet.expansion.
type expansionReader struct {
	builder *valueSetBuilder
	StoredExpansion
	include       []ConceptSet
	total         int    // ValueSet.expansion.total; -1 if absent
	partialReason string // why codes may be missing; "" if the expansion is complete
	depth         int
}

// maxStoredDepth is the maximum nesting depth of entries in a stored expansion.
const maxStoredDepth = 64

var errStoredDepth = errors.New("entries of the expansion are nested more than " + strconv.Itoa(maxStoredDepth) + " deep")

// readExpansion reads a stored expansion. It skips the expansion if the value set has a compose.
func (b *valueSetBuilder) readExpansion(r *fhirjson.Reader) error {
	if b.vs.HasCompose {
		return r.Skip()
	}
	s := &expansionReader{builder: b, total: -1}
	b.stored = s
	return r.ObjectWith(func(name []byte) error { return s.readMember(r, string(name)) },
		fhirjson.String{Name: "identifier", Destination: &s.Identifier}, fhirjson.String{Name: "timestamp", Destination: &s.Timestamp})
}

// applyTo copies the codes of the expansion to vs if vs has no compose and the expansion is complete.
func (s *expansionReader) applyTo(vs *ValueSet) {
	if s == nil || vs.HasCompose {
		return
	}
	count := 0
	for _, set := range s.include {
		count += int(set.EndRow - set.FirstRow)
	}
	if s.partialReason == "" && s.total >= 0 && s.total != count {
		s.partialReason = "it has " + strconv.Itoa(count) + " of " + strconv.Itoa(s.total) + " codes"
	}
	if vs.PartialReason = s.partialReason; s.partialReason != "" {
		return
	}
	vs.HasCompose, vs.Include, vs.Stored = true, s.include, &s.StoredExpansion
}

func (s *expansionReader) readMember(r *fhirjson.Reader, name string) error {
	switch name {
	case "contains":
		return r.ArrayOf(smallPartSize, func() error { return s.readEntry(r) })
	case "total", "offset":
		text, err := r.Value('0')
		n, invalid := strconv.Atoi(string(text))
		switch {
		case err != nil || invalid != nil:
		case name == "total":
			s.total = n
		case n > 0:
			s.partialReason = "it starts at an offset"
		}
		return err
	case "parameter":
		return r.Array(func() error { return s.readParameter(r) })
	case "extension":
		return s.readExtensions(r)
	case "modifierExtension":
		return s.builder.vs.readModifiers(r)
	}
	return r.Skip()
}

// readParameter reads an entry of expansion.parameter. A parameter that restricts the expansion makes it incomplete.
func (s *expansionReader) readParameter(r *fhirjson.Reader) error {
	var in parameters.Input
	err := r.Object(func(name []byte) error { return in.ReadMember(r, name, 0) })
	switch {
	case in.Name == "filter" && in.Value != "", in.Name == "limitedExpansion" && in.Value == "true", in.Name == "exclude-system":
		s.partialReason = "it was generated with the parameter " + in.Name
	case in.Name == "count" && s.total < 0:
		s.partialReason = cmp.Or(s.partialReason, "it was generated with the parameter count and has no total")
	}
	return err
}

func (s *expansionReader) readExtensions(r *fhirjson.Reader) error {
	list, err := r.Extensions(0)
	for _, x := range list {
		if kind := strings.TrimPrefix(x.URL, fhirjson.ExtensionBase); (kind == "valueset-toocostly" || kind == "valueset-unclosed") && x.Value != "false" {
			s.partialReason = "it has the extension " + kind
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
	contains        jsontext.Value
}

// readEntry reads an entry of expansion.contains and its nested entries. Entries without a code are headings.
func (s *expansionReader) readEntry(r *fhirjson.Reader) error {
	e, err := s.parseEntry(r)
	if err != nil {
		return err
	}
	rows := &s.builder.definitions.rows
	if len(rows.Texts.At(e.code)) > 0 {
		if err := s.addRow(r, &e); err != nil {
			return err
		}
	}
	if e.contains == nil {
		return nil
	}
	if s.depth++; s.depth > maxStoredDepth {
		return errStoredDepth
	}
	defer func() { s.depth-- }()
	inner := r.Inner(e.contains)
	return inner.ArrayOf(smallPartSize, func() error { return s.readEntry(inner) })
}

func (s *expansionReader) parseEntry(r *fhirjson.Reader) (e storedEntry, err error) {
	texts := &s.builder.definitions.rows.Texts
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
			return s.builder.vs.readModifiers(r)
		case "designation":
			value, err := r.Value('[')
			e.designations = value.Clone()
			return err
		case "contains":
			value, err := r.Value('[')
			e.contains = value.Clone()
			return err
		}
		return r.Skip()
	})
	return e, err
}

// addRow adds a row for an entry. It extends the last include if the code system and version are the same.
func (s *expansionReader) addRow(r *fhirjson.Reader, e *storedEntry) error {
	rows := &s.builder.definitions.rows
	row := rows.nextRow()
	if e.designations != nil {
		inner := r.Inner(e.designations)
		if err := inner.Array(func() error { return rows.ReadDesignation(inner, &rows.Texts, row) }); err != nil {
			return err
		}
	}
	rows.Code, rows.display = append(rows.Code, e.code), append(rows.display, e.display)
	rows.system = append(rows.system, s.builder.definitions.Systems.internSystem(e.system))
	if e.flags != 0 {
		if rows.flags == nil {
			rows.flags = make(map[uint32]codesystem.Flags)
		}
		rows.flags[row] = e.flags
	}
	if e.system == "" {
		s.partialReason = "an entry has no system"
	}
	last := len(s.include) - 1
	if last < 0 || s.include[last].System != e.system || s.include[last].Version != e.version {
		s.include = append(s.include, ConceptSet{System: e.system, Version: e.version, IsEnumerated: true, FromStoredExpansion: true, FirstRow: row})
		last++
	}
	s.include[last].EndRow = row + 1
	return nil
}
