package expansion

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Writer writes the ValueSet response of $expand.
type Writer struct {
	x     *Expansion
	get   bool          // for GET: a list unless a tree is requested, and always an offset
	shape *compose.Tree // tree of the page; nil for a list

	echo       []byte // JSON of expansion.parameter
	identifier []byte
	room       struct { // preallocated for a typical echo and for identifier
		echo       [256]byte
		identifier [len("urn:uuid:") + 36]byte
	}
	stream stream

	extensions extensionWriter
	shown      []codesystem.Text
	lastSystem struct { // last written code system, and its position
		system   uint32
		from, to int
	}
	prefetched byte
}

// appendNumber appends a number, or 0 for nil.
func appendNumber(dst []byte, n *int) []byte {
	if n == nil {
		return append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(*n), 10)
}

// Article prepends the indefinite article to a content mode.
func Article(noun string) string {
	if noun == string(definitions.ContentExample) {
		return "an " + noun
	}
	return "a " + noun
}

// chunk is the minimum number of bytes per write of a streamed response.
const chunk = 64 << 10

type stream struct {
	out    io.Writer // nil for a buffered response
	failed error     // error of out
}

// write writes a part of the response unless an earlier write failed.
func (s *stream) write(part []byte) {
	if s.failed == nil {
		_, s.failed = s.out.Write(part)
	}
}

// flush writes the buffered part of a streamed response if it is large enough.
func (w *Writer) flush(dst []byte) []byte {
	if w.stream.out == nil || len(dst) < chunk {
		return dst
	}
	w.stream.write(dst)
	w.lastSystem.to = 0
	return dst[:0]
}

// Parameter is an entry of ValueSet.expansion.parameter.
type Parameter struct {
	// Name is the name. Value is the value of any type as text.
	Name, Value string
}

// Parameters returns expansion.parameter: parameters of the request, used definitions, and warnings about them.
func (x *Expansion) Parameters() []Parameter {
	var written []byte
	x.Library.Use(func() { written = NewWriter(x, false).echo })
	_, array, _ := bytes.Cut(written, []byte{':'})
	r, list := fhirjson.ReaderOf(array), []Parameter{}
	_ = r.Array(func() error { // cannot fail: written above
		var in parameters.Input
		err := r.Object(func(name []byte) error { return in.Member(r, name, 0) })
		list = append(list, Parameter{Name: in.Name, Value: in.Value})
		return err
	})
	return list
}

// WriteTo streams the response using a buffer, which may grow.
func (w *Writer) WriteTo(out io.Writer, buffer *[]byte) error {
	w.stream.out = out
	*buffer = w.Append((*buffer)[:0])
	w.stream.write(*buffer)
	if w.stream.failed != nil {
		return fmt.Errorf("writing the answer: %w", w.stream.failed)
	}
	return nil
}

// NewWriter prepares the response to a GET or POST.
func NewWriter(x *Expansion, get bool) *Writer {
	w := &Writer{x: x, get: get, extensions: extensionWriter{x: x}}
	w.shape = w.chooseShape()
	w.echo = w.appendParameters(w.room.echo[:0])
	w.identifier = appendIdentifier(w.room.identifier[:0], w.x, w.echo)
	return w
}

// chooseShape returns the tree of the response, or nil for a list. A page is always a list, as is the result of a text
// filter, unless the value set itself has a filter: then its concepts keep their positions.
func (w *Writer) chooseShape() *compose.Tree {
	q, x := &w.x.query, w.x.List
	if !x.MayBeTree || !w.wantsTree() || len(w.x.page) < w.x.total || q.Offset != nil && *q.Offset > 0 {
		return nil
	}
	if q.Filter == "" {
		return x.Tree
	}
	if !x.Filtered || q.Count != nil {
		return nil
	}
	return compose.BuildTree(w.x.Library, w.x.page, true)
}

// wantsTree reports whether the response may be a tree. A GET must explicitly have excludeNested=false, because most
// GET clients read only the top level and would miss codes.
func (w *Writer) wantsTree() bool {
	if w.get {
		return w.x.query.ExcludeNested == parameters.No && w.x.query.HasParameter("excludeNested")
	}
	return w.x.query.ExcludeNested != parameters.Yes
}

// Append appends the ValueSet as JSON without an encoder: a response costs little more than copying its text.
func (w *Writer) Append(dst []byte) []byte {
	dst = append(dst, `{"resourceType":"ValueSet"`...)
	dst = w.x.query.subset.appendMeta(dst)
	dst = appendValueSet(dst, w.x.valueSet, &w.x.query.subset, w.x.query.IncludeDefinition == parameters.Yes)
	if w.x.query.subset.Has("expansion") {
		dst = w.appendExpansion(dst)
	}
	return append(dst, '}')
}

// appendExpansion appends the member expansion, or only its total.
func (w *Writer) appendExpansion(dst []byte) []byte {
	dst = append(append(dst, `,"expansion":{"identifier":"`...), w.identifier...)
	dst = append(dst, `","timestamp":`...)
	if stored := w.x.valueSet.Stored; stored != nil && stored.Timestamp != "" {
		dst = fhirjson.AppendString(dst, stored.Timestamp)
	} else {
		dst = append(w.x.Library.Loaded.AppendFormat(append(dst, '"'), time.RFC3339), '"')
	}
	hasCodes := w.x.query.subset.hasCodes()
	if w.x.query.paged() || !hasCodes || len(w.x.List.Based) == 0 { // the total of a grammar is unknown, but a page reveals whether more codes follow
		dst = strconv.AppendInt(append(dst, `,"total":`...), int64(w.x.total), 10)
	}
	if !hasCodes {
		return append(dst, '}')
	}
	if w.x.query.paged() || w.get { // R4 includes the offset only with paging
		dst = appendNumber(append(dst, `,"offset":`...), w.x.query.Offset)
	}
	dst = w.appendContains(append(dst, w.echo...))
	return append(w.appendExpansionExtensions(dst), '}')
}

// appendValueSet appends the identifying members of the value set, or all members.
func appendValueSet(dst []byte, vs *definitions.ValueSet, part *Subset, whole bool) []byte {
	member := func(name, value string) {
		if part.Has(name) {
			dst = fhirjson.AppendMember(dst, name, value)
		}
	}
	if whole {
		member("id", vs.ID)
	}
	member("language", vs.Language)
	member("url", vs.URL)
	member("version", vs.Version)
	member("name", vs.Name)
	member("title", vs.Title)
	member("status", cmp.Or(vs.Status, "unknown")) // required by R4
	if vs.Experimental != nil && part.Has("experimental") {
		dst = strconv.AppendBool(append(dst, `,"experimental":`...), *vs.Experimental)
	}
	if !whole {
		return dst
	}
	member("date", vs.Date)
	member("publisher", vs.Publisher)
	for _, m := range vs.OtherMembers {
		if part.Has(m.Name) {
			dst = m.Append(append(dst, ','))
		}
	}
	return dst
}

// unclosed returns the reasons why codes may be missing. Clients may expect this text of other servers.
func (w *Writer) unclosed() (reasons []string) {
	for _, index := range w.x.List.CodeSystems {
		if cs := w.x.Library.Systems.CodeSystems[index]; cs.Content != definitions.ContentComplete {
			reasons = append(reasons, "This extension is based on "+Article(string(cs.Content))+" of the code system "+cs.URL)
		}
	}
	for _, b := range w.x.List.Based {
		cs := w.x.Library.Systems.CodeSystems[b.CodeSystem]
		definitions.AddTo(&reasons, fmt.Sprintf("The code System '%s' has a grammar and so has infinite members. This extension is based on %s", cs.URL, cs.Common))
	}
	for _, index := range w.x.List.Unlisted {
		reasons = append(reasons, "User-assigned codes of the code system "+w.x.Library.Systems.CodeSystems[index].URL+" are not listed")
	}
	return reasons
}

// appendExpansionExtensions appends expansion.extension: incomplete code systems, and the properties of the entries,
// which are only known after the entries have been written.
func (w *Writer) appendExpansionExtensions(dst []byte) []byte {
	list := fhirjson.Array{Name: "extension"}
	for _, reason := range w.unclosed() {
		if list.IsEmpty() {
			dst = append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase+`valueset-unclosed","valueBoolean":true}`...)
		}
		dst = append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase+`valueset-unclosed-reason","valueString":`...)
		dst = append(fhirjson.AppendString(dst, reason), '}')
	}
	for _, p := range w.extensions.declared {
		dst = append(list.Next(dst), `{"url":"`+propertyDeclaration+`","extension":[{"url":"code","valueCode":`...)
		dst = append(fhirjson.AppendString(dst, p.Code), '}')
		if p.URI != "" {
			dst = append(dst, `,{"url":"uri","valueUri":`...)
			dst = append(fhirjson.AppendString(dst, p.URI), '}')
		}
		dst = append(dst, `]}`...)
	}
	return list.End(dst)
}

// appendParameters appends expansion.parameter: parameters of the request, used definitions, and warnings about them.
func (w *Writer) appendParameters(dst []byte) []byte {
	list := &parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	q, x := &w.x.query, w.x.List
	if q.Filter != "" {
		list.text("filter", "valueString", q.Filter)
	}
	if w.x.corrected != "" {
		list.text("corrected-filter", "valueString", w.x.corrected)
	}
	if language := q.Language.Preferred(w.x.valueSet); language != "" {
		list.text("displayLanguage", "valueCode", language)
	}
	for _, designation := range q.Designations {
		list.text("designation", "valueString", designation)
	}
	list.choices(q)
	if x.Merged {
		list.choice("versionsMatch", parameters.Yes)
	}
	if q.Date != "" {
		list.text("date", "valueDateTime", q.Date)
	}
	list.number("offset", q.Offset)
	list.number("count", q.Count)
	for _, excluded := range q.Versions.Excluded {
		list.text("exclude-system", "valueUri", excluded)
	}
	for _, rule := range x.Applied {
		list.text(rule.Name, "valueUri", rule.Value)
	}
	w.listUsed(list)
	return list.list.End(list.dst)
}

// choices adds the boolean parameters of the request.
func (l *parameterList) choices(q *Query) {
	l.choice("excludeNested", q.ExcludeNested)
	l.choice("activeOnly", q.ActiveOnly)
	l.choice("includeDesignations", q.IncludeDesignations)
	l.choice("includeDefinition", q.IncludeDefinition)
	l.choice("excludeNotForUI", q.ExcludeNotForUI)
	l.choice("excludePostCoordinated", q.ExcludePostCoordinated)
}

func (w *Writer) listUsed(list *parameterList) {
	for _, index := range w.x.List.CodeSystems {
		cs := w.x.Library.Systems.CodeSystems[index]
		list.text("used-codesystem", "valueUri", cs.Canonical())
		if cs.Content != definitions.ContentComplete {
			list.text("used-"+string(cs.Content), "valueUri", cs.Canonical())
		}
		list.warning(&cs.Definition, w.x.valueSet)
		if cs.Copyright != "" && w.x.query.IncludeDefinition == parameters.Yes {
			list.text("copyright", "valueString", cs.Copyright)
		}
	}
	for _, b := range w.x.List.Based {
		if b.On != nil { // other servers do not warn if filters select common codes
			list.warning(&b.On.Definition, w.x.valueSet)
		}
	}
	for _, unchecked := range w.x.List.Unchecked {
		list.text("warning-unknown-system", "valueUri", unchecked)
	}
	for _, vs := range w.x.List.ValueSets {
		list.text("used-valueset", "valueUri", vs.Canonical())
		list.stored(vs)
		list.warning(&vs.Definition, w.x.valueSet)
	}
	list.stored(w.x.valueSet)
	list.warning(&w.x.valueSet.Definition, w.x.valueSet)
	var supplements []uint32
	for _, s := range w.x.List.Supplements {
		definitions.AddTo(&supplements, s.By)
	}
	for _, index := range supplements {
		list.text("used-supplement", "valueUri", w.x.Library.Systems.CodeSystems[index].Canonical())
	}
}

// parameterList writes expansion.parameter.
type parameterList struct {
	dst  []byte
	list fhirjson.Array
}

func (l *parameterList) text(name, kind, value string) {
	l.dst = append(fhirjson.AppendString(l.begin(name, kind), value), '}')
}

func (l *parameterList) number(name string, n *int) {
	if n != nil {
		l.dst = append(strconv.AppendInt(l.begin(name, "valueInteger"), int64(*n), 10), '}')
	}
}

func (l *parameterList) choice(name string, c parameters.Choice) {
	if c != parameters.Unset {
		l.dst = append(strconv.AppendBool(l.begin(name, "valueBoolean"), c == parameters.Yes), '}')
	}
}

// begin appends a parameter up to its value.
func (l *parameterList) begin(name, kind string) []byte {
	dst := append(append(l.list.Next(l.dst), `{"name":"`...), name...)
	return append(append(append(dst, `","`...), kind...), '"', ':')
}

// stored adds the identifier of the stored expansion, if any.
func (l *parameterList) stored(vs *definitions.ValueSet) {
	if vs.Stored != nil {
		l.text("used-expansion", "valueUri", cmp.Or(vs.Stored.Identifier, vs.Canonical()))
	}
}

// warning adds the status of a definition, if notable.
func (l *parameterList) warning(d *definitions.Definition, vs *definitions.ValueSet) {
	if name := d.StatusWarning(vs); name != "" {
		l.text("warning-"+name, "valueUri", d.Canonical())
	}
}

// appendContains appends expansion.contains as a list or tree.
func (w *Writer) appendContains(dst []byte) []byte {
	if w.shape != nil {
		return w.appendTree(dst, w.shape.Root)
	}
	if len(w.x.page) <= maxPrefetched {
		w.fetch()
	}
	list := fhirjson.Array{Name: "contains"}
	for i := range w.x.page {
		dst = w.flush(append(w.appendEntry(list.Next(dst), i), '}'))
	}
	return list.End(dst)
}

// maxPrefetched is the maximum number of entries of a page that are prefetched.
const maxPrefetched = 256

// fetch reads the first bytes of all entries of a page in advance, so that the cache misses of scattered memory
// overlap.
func (w *Writer) fetch() {
	var sum byte
	for _, e := range w.x.page {
		if e.IsNumbered() {
			code, display, flags := w.x.Library.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(codesystem.At(e.Concept))
			sum += byte(len(code)+len(display)) + byte(flags)
		}
	}
	w.prefetched = sum // keeps the compiler from removing the reads
}

// appendTree appends an entry and its following siblings, each with its children.
func (w *Writer) appendTree(dst []byte, first uint32) []byte {
	list := fhirjson.Array{Name: "contains"}
	for i := first; i != definitions.None; i = w.shape.Next[i] {
		dst = w.appendEntry(list.Next(dst), int(i))
		dst = w.flush(append(w.appendTree(dst, w.shape.Child[i]), '}'))
	}
	return list.End(dst)
}

// appendEntry appends an entry of expansion.contains without its closing brace.
func (w *Writer) appendEntry(dst []byte, i int) []byte {
	l, e := w.x.Library, w.x.page[i]
	code, display, flags := l.Coded(e)
	dst = append(dst, '{')
	if w.x.detailed || flags&(codesystem.FlagStatus|codesystem.FlagExtended) != 0 || e.ListedRow() != 0 {
		dst = w.extensions.append(dst, l.Locate(e), flags)
	}
	dst = w.appendSystem(dst, l.SystemOf(e))
	if flags&codesystem.FlagAbstract != 0 {
		dst = append(dst, `,"abstract":true`...)
	}
	if flags&codesystem.FlagInactive != 0 {
		dst = append(dst, `,"inactive":true`...)
	}
	if w.x.isVersioned(e) {
		dst = fhirjson.AppendMember(dst, "version", l.Systems.CodeSystems[e.CodeSystem].Version)
	}
	dst = fhirjson.AppendString(append(dst, `,"code":`...), code)
	if !w.x.detailed {
		return fhirjson.AppendMember(dst, "display", display)
	}
	return w.appendTexts(dst, e)
}

// appendSystem appends the code system of an entry, copying it from the previous entry if equal.
func (w *Writer) appendSystem(dst []byte, system uint32) []byte {
	if last := w.lastSystem; last.to > 0 && last.system == system {
		return append(dst, dst[last.from:last.to]...)
	}
	w.lastSystem.system, w.lastSystem.from = system, len(dst)
	dst = fhirjson.AppendString(append(dst, `"system":`...), w.x.Library.Systems.List[system].URL)
	w.lastSystem.to = len(dst)
	return dst
}

// appendTexts appends the display and designations.
func (w *Writer) appendTexts(dst []byte, e definitions.Entry) []byte {
	if w.x.hasOneText(e) {
		return fhirjson.AppendMember(dst, "display", w.x.Library.Display(e))
	}
	w.shown = w.x.texts(w.shown[:0], e)
	display := w.x.languages.Preferred(w.shown)
	if display >= 0 {
		dst = fhirjson.AppendMember(dst, "display", w.shown[display].Value)
	}
	if w.x.query.wantsDesignations() {
		dst = w.x.query.appendDesignations(dst, w.shown, display)
	}
	return dst
}

// wantsDesignation reports whether a designation is requested, by use or by language as urn:ietf:bcp:47|de.
func (q *Query) wantsDesignation(t *codesystem.Text) bool {
	return len(q.Designations) == 0 || slices.ContainsFunc(q.Designations, func(token string) bool {
		system, code := outcome.Split(token)
		return system == "urn:ietf:bcp:47" && code == t.Language || t.Use.Code != "" && system == t.Use.System && code == t.Use.Code
	})
}

// appendDesignations appends contains.designation: all texts except the display.
func (q *Query) appendDesignations(dst []byte, texts []codesystem.Text, display int) []byte {
	list := fhirjson.Array{Name: "designation"}
	for i := range texts {
		t := &texts[i]
		same := display >= 0 && bytes.Equal(t.Value, texts[display].Value) && t.Extension == nil
		redundant := same && (t.Display || t.Language == "" && t.Use == (codesystem.Use{}))
		if i != display && !redundant && q.wantsDesignation(t) {
			dst = t.Append(list.Next(dst))
		}
	}
	return list.End(dst)
}

// append appends the extensions of an entry, followed by a comma.
func (w *extensionWriter) append(dst []byte, e definitions.LocatedEntry, flags codesystem.Flags) []byte {
	start := len(dst)
	list := fhirjson.Array{Name: "extension"}
	system, own := w.extensionsOf(e)
	for _, kind := range shownFromSystem {
		if own[kind] == nil {
			dst = appendShown(dst, &list, kind, system[kind])
		}
	}
	for _, kind := range shownFromValueSet {
		dst = appendShown(dst, &list, kind, own[kind])
	}
	for _, value := range w.alternates {
		dst = appendShown(dst, &list, codesystem.ExtensionAlternate, value)
	}
	dst = w.appendProperties(dst, &list, e, flags, system, own)
	if list.IsEmpty() {
		return dst
	}
	dst = append(list.End(dst), ',')
	return slices.Delete(dst, start, start+1) // the leading comma
}

// Extensions copied from code systems and value sets.
var (
	shownFromSystem   = []codesystem.ExtensionKind{codesystem.ExtensionStyle, codesystem.ExtensionXHTML, codesystem.ExtensionDescriptionID}
	shownFromValueSet = []codesystem.ExtensionKind{
		codesystem.ExtensionDeprecated, codesystem.ExtensionStandardsStatus, codesystem.ExtensionConceptDefinition, codesystem.ExtensionDescriptionID, codesystem.ExtensionStyle, codesystem.ExtensionXHTML,
	}
)

// appendShown appends an extension unless its value is nil.
func appendShown(dst []byte, list *fhirjson.Array, kind codesystem.ExtensionKind, value []byte) []byte {
	if value == nil {
		return dst
	}
	dst = append(append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase...), shownNames[kind]...)
	dst = append(append(dst, '"', ','), value...)
	return append(dst, '}')
}

// shownNames contains the URL suffixes of the copied extensions.
var shownNames = map[codesystem.ExtensionKind]string{
	codesystem.ExtensionStyle: "rendering-style", codesystem.ExtensionXHTML: "rendering-xhtml", codesystem.ExtensionDeprecated: "valueset-deprecated",
	codesystem.ExtensionStandardsStatus: "structuredefinition-standards-status", codesystem.ExtensionConceptDefinition: "valueset-concept-definition",
	codesystem.ExtensionDescriptionID: "coding-sctdescid", codesystem.ExtensionAlternate: "codesystem-alternate",
}

// extensionsOf returns the extensions of the code system with its supplements, and those of the value set that lists
// the entry.
func (w *extensionWriter) extensionsOf(e definitions.LocatedEntry) (system, own extensionValues) {
	w.alternates = w.alternates[:0]
	for cs, concept := range w.x.Library.Described(e, w.x.List.Supplements) {
		w.extended = cs.Concepts.Notes.AppendExtensions(w.extended[:0], concept)
		for _, x := range w.extended {
			system[x.Kind] = x.Value
			if x.Kind == codesystem.ExtensionAlternate {
				w.alternates = append(w.alternates, x.Value)
			}
		}
	}
	if e.ListedRow() != 0 {
		table, _ := w.x.Library.Row(e.Listed)
		for _, x := range table.ExtensionsOf(e.Listed) {
			own[x.Kind] = table.Texts.At(x.Value)
		}
	}
	return system, own
}

// appendProperties appends the properties of an entry: a status other than active, extensions that are properties in
// R5, and the requested properties.
func (w *extensionWriter) appendProperties(dst []byte, list *fhirjson.Array, e definitions.LocatedEntry, flags codesystem.Flags, system, own extensionValues) []byte {
	if flags&codesystem.FlagStatus != 0 {
		if status := w.x.Library.Systems.CodeSystems[e.CodeSystem].Concepts.Notes.Status(e.At); status != "" {
			dst = w.beginProperty(dst, list, codesystem.Property{Code: "status", URI: codesystem.PropertyBase + "status"}, "valueCode")
			dst = append(fhirjson.AppendString(dst, status), propertyEnd...)
		}
	}
	for _, p := range extensionProperties {
		value := own[p.kind]
		if value == nil {
			value = system[p.kind]
		}
		if value != nil {
			dst = w.beginProperty(dst, list, p.property, p.member)
			dst = append(append(dst, fhirjson.ValueText(value)...), propertyEnd...)
		}
	}
	if len(w.x.query.Properties) == 0 || !e.IsKnown() {
		return dst
	}
	cs := w.x.Library.Systems.CodeSystems[e.CodeSystem]
	if meaning := cs.Concepts.Notes.Definition(e.At); meaning != nil && slices.Contains(w.x.query.Properties, "definition") {
		dst = w.beginProperty(dst, list, codesystem.Property{Code: "definition", URI: codesystem.PropertyBase + "definition"}, "valueString")
		dst = append(fhirjson.AppendString(dst, meaning), propertyEnd...)
	}
	dst = w.appendRelated(dst, list, "parent", cs, cs.Concepts.Hierarchy.Parents(e.At.Number))
	dst = w.appendRelated(dst, list, "child", cs, cs.Concepts.Hierarchy.Children(e.At.Number))
	for cs, concept := range w.x.Library.Described(e, w.x.List.Supplements) {
		dst = w.appendAsked(dst, list, cs, concept)
	}
	return dst
}

// extensionProperties lists the extensions that are properties in R5.
var extensionProperties = []struct {
	kind     codesystem.ExtensionKind
	property codesystem.Property
	member   string
}{
	{codesystem.ExtensionLabel, codesystem.Property{Code: "label", URI: codesystem.PropertyBase + "label"}, "valueString"},
	{codesystem.ExtensionOrder, codesystem.Property{Code: "order", URI: codesystem.PropertyBase + "order"}, "valueDecimal"},
	{codesystem.ExtensionWeight, codesystem.Property{Code: "weight", URI: codesystem.PropertyBase + "itemWeight"}, "valueDecimal"},
}

// appendRelated appends the codes of parents or children if requested by name. FHIR defines these properties for every
// code system (R4 §4.8.10), regardless of the representation of its hierarchy.
func (w *extensionWriter) appendRelated(dst []byte, list *fhirjson.Array, name string, cs *definitions.CodeSystem, related []uint32) []byte {
	if !slices.Contains(w.x.query.Properties, name) {
		return dst
	}
	for _, other := range related {
		dst = w.beginProperty(dst, list, codesystem.Property{Code: name, URI: codesystem.PropertyBase + name}, "valueCode")
		dst = append(fhirjson.AppendString(dst, cs.Concepts.Code(codesystem.At(other))), propertyEnd...)
	}
	return dst
}

// appendAsked appends the requested properties of a concept, by name or * for all.
func (w *extensionWriter) appendAsked(dst []byte, list *fhirjson.Array, cs *definitions.CodeSystem, c codesystem.Concept) []byte {
	all := slices.Contains(w.x.query.Properties, "*")
	w.values = cs.Concepts.AppendValues(w.values[:0], c)
	for i := range w.values {
		v := &w.values[i]
		p := v.Property
		told := p.Is("status") && !strings.EqualFold(string(v.Text), "active") ||
			(p.Code == "parent" || p.Code == "child") && slices.Contains(w.x.query.Properties, p.Code)
		if told || !all && !slices.Contains(w.x.query.Properties, p.Code) {
			continue
		}
		dst = w.beginProperty(dst, list, codesystem.Property{Code: p.Code, URI: p.URI}, v.Member)
		dst = append(v.AppendJSON(dst), propertyEnd...)
	}
	return dst
}

// beginProperty appends a property of an entry up to its value, and adds the property to the declarations.
func (w *extensionWriter) beginProperty(dst []byte, list *fhirjson.Array, p codesystem.Property, member string) []byte {
	if !slices.ContainsFunc(w.declared, func(d codesystem.Property) bool { return d.Code == p.Code }) {
		w.declared = append(w.declared, p)
	}
	dst = append(list.Next(dst), `{"url":"`+propertyValue+`","extension":[{"url":"code","valueCode":`...)
	dst = append(fhirjson.AppendString(dst, p.Code), `},{"url":"value","`...)
	return append(append(dst, member...), '"', ':')
}

// propertyEnd follows the value of a property.
const propertyEnd = "}]}"

// extensionWriter writes the extensions of entries, including those for R5's properties.
type extensionWriter struct {
	x          *Expansion
	declared   []codesystem.Property // properties of the entries on the page
	extended   []codesystem.Extension
	alternates [][]byte // alternate codes of the entry
	values     []codesystem.Value
}

// extensionValues contains the extensions of a concept by kind, as JSON members.
type extensionValues [codesystem.ExtensionReplacedBy + 1][]byte

// URLs of the extensions for R5's expansion.property and contains.property.
const (
	propertyDeclaration = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property"
	propertyValue       = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property"
)
