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

// Writer writes an expansion as a ValueSet in JSON.
type Writer struct {
	expansion *Expansion
	isGET     bool          // GET: the expansion is a list unless a tree is requested, and always has an offset
	tree      *compose.Tree // tree of the entries; nil if the response is a list

	parameters []byte // JSON of expansion.parameter
	identifier []byte
	buffers    struct { // backing arrays for typical parameters and for identifier
		echo       [256]byte
		identifier [len("urn:uuid:") + 36]byte
	}
	stream stream

	extensions extensionWriter
	texts      []codesystem.Text
	lastSystem struct { // last code system written, and its position in the buffer
		system   uint32
		from, to int
	}
	prefetched byte
}

// appendNumber appends *n, or 0 if n is nil.
func appendNumber(dst []byte, n *int) []byte {
	if n == nil {
		return append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(*n), 10)
}

// WithArticle prepends "a" or "an" to a content mode.
func WithArticle(noun string) string {
	if noun == string(definitions.ContentExample) {
		return "an " + noun
	}
	return "a " + noun
}

// minChunkSize is the minimum number of bytes that a streamed response writes at once.
const minChunkSize = 64 << 10

type stream struct {
	out io.Writer // nil if the response is not streamed
	err error     // first error that out returned
}

// write writes a part of the response unless an earlier write failed.
func (s *stream) write(part []byte) {
	if s.err == nil {
		_, s.err = s.out.Write(part)
	}
}

// flush writes dst and returns an empty buffer if the response is streamed and dst is large enough.
func (w *Writer) flush(dst []byte) []byte {
	if w.stream.out == nil || len(dst) < minChunkSize {
		return dst
	}
	w.stream.write(dst)
	w.lastSystem.to = 0
	return dst[:0]
}

// Parameter is an entry of ValueSet.expansion.parameter.
type Parameter struct {
	// Name is the name of the parameter. Value is its value[x] as text.
	Name, Value string
}

// Parameters returns expansion.parameter: parameters of the request, definitions used, and warnings about them.
func (x *Expansion) Parameters() []Parameter {
	var written []byte
	x.Definitions.Use(func() { written = NewWriter(x, false).parameters })
	_, array, _ := bytes.Cut(written, []byte{':'})
	r, list := fhirjson.NewValueReader(array), []Parameter{}
	_ = r.Array(func() error { // cannot fail, because the Writer wrote the array
		var in parameters.Input
		err := r.Object(func(name []byte) error { return in.ReadMember(r, name, 0) })
		list = append(list, Parameter{Name: in.Name, Value: in.Value})
		return err
	})
	return list
}

// WriteTo streams the response to out through a buffer, which it may enlarge.
func (w *Writer) WriteTo(out io.Writer, buffer *[]byte) error {
	w.stream.out = out
	*buffer = w.Append((*buffer)[:0])
	w.stream.write(*buffer)
	if w.stream.err != nil {
		return fmt.Errorf("writing the response: %w", w.stream.err)
	}
	return nil
}

// NewWriter returns a Writer for the response to a GET (get is true) or POST.
func NewWriter(x *Expansion, get bool) *Writer {
	w := &Writer{expansion: x, isGET: get, extensions: extensionWriter{expansion: x}}
	w.tree = w.chooseTree()
	w.parameters = w.appendParameters(w.buffers.echo[:0])
	w.identifier = appendIdentifier(w.buffers.identifier[:0], w.expansion, w.parameters)
	return w
}

// chooseTree returns the tree of the response, or nil if the response is a list. A page is always a list. The result of a text
// filter is a tree only if the value set also filters, because its concepts then keep their positions.
func (w *Writer) chooseTree() *compose.Tree {
	q, x := &w.expansion.query, w.expansion.CodeList
	if !x.MayBeTree || !w.allowsTree() || len(w.expansion.page) < w.expansion.total || q.Offset != nil && *q.Offset > 0 {
		return nil
	}
	if q.Filter == "" {
		return x.Tree
	}
	if !x.HasFilter || q.Count != nil {
		return nil
	}
	return compose.BuildTree(w.expansion.Definitions, w.expansion.page, true)
}

// allowsTree reports whether the request permits a tree. A GET must explicitly specify excludeNested=false, because most
// clients that use GET read only the top level and would miss codes.
func (w *Writer) allowsTree() bool {
	if w.isGET {
		return w.expansion.query.ExcludeNested == parameters.No && w.expansion.query.HasParameter("excludeNested")
	}
	return w.expansion.query.ExcludeNested != parameters.Yes
}

// Append appends the ValueSet as JSON. It does not use an encoder, so that a response costs little more than copying its text.
func (w *Writer) Append(dst []byte) []byte {
	dst = append(dst, `{"resourceType":"ValueSet"`...)
	dst = w.expansion.query.subset.appendMeta(dst)
	dst = appendValueSet(dst, w.expansion.valueSet, &w.expansion.query.subset, w.expansion.query.IncludeDefinition == parameters.Yes)
	if w.expansion.query.subset.Has("expansion") {
		dst = w.appendExpansion(dst)
	}
	return append(dst, '}')
}

// appendExpansion appends the member expansion. If the subset excludes the codes, it contains only the total.
func (w *Writer) appendExpansion(dst []byte) []byte {
	dst = append(append(dst, `,"expansion":{"identifier":"`...), w.identifier...)
	dst = append(dst, `","timestamp":`...)
	if stored := w.expansion.valueSet.Stored; stored != nil && stored.Timestamp != "" {
		dst = fhirjson.AppendString(dst, stored.Timestamp)
	} else {
		dst = append(w.expansion.Definitions.Loaded.AppendFormat(append(dst, '"'), time.RFC3339), '"')
	}
	hasCodes := w.expansion.query.subset.hasCodes()
	if w.expansion.query.isPaged() || !hasCodes || len(w.expansion.CodeList.GrammarBases) == 0 { // the total of a grammar is unknown, but a page shows whether more codes follow
		dst = strconv.AppendInt(append(dst, `,"total":`...), int64(w.expansion.total), 10)
	}
	if !hasCodes {
		return append(dst, '}')
	}
	if w.expansion.query.isPaged() || w.isGET { // R4 has an offset only with paging
		dst = appendNumber(append(dst, `,"offset":`...), w.expansion.query.Offset)
	}
	dst = w.appendContains(append(dst, w.parameters...))
	return append(w.appendExpansionExtensions(dst), '}')
}

// appendValueSet appends the members that identify the value set or, if complete is true, all members.
func appendValueSet(dst []byte, vs *definitions.ValueSet, part *Subset, complete bool) []byte {
	member := func(name, value string) {
		if part.Has(name) {
			dst = fhirjson.AppendMember(dst, name, value)
		}
	}
	if complete {
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
	if !complete {
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

// incompleteReasons returns why codes may be missing. A reason may be empty. The texts are those of other servers, because clients may expect them.
func (w *Writer) incompleteReasons() (reasons []string) {
	for _, index := range w.expansion.CodeList.CodeSystems {
		if cs := w.expansion.Definitions.Systems.CodeSystems[index]; cs.Content != definitions.ContentComplete {
			reasons = append(reasons, "This extension is based on "+WithArticle(string(cs.Content))+" of the code system "+cs.URL)
		}
	}
	for _, b := range w.expansion.CodeList.GrammarBases {
		cs := w.expansion.Definitions.Systems.CodeSystems[b.CodeSystem]
		definitions.AppendUnique(&reasons, fmt.Sprintf("The code System '%s' has a grammar and so has infinite members. This extension is based on %s", cs.URL, cs.CommonCodes))
	}
	for _, open := range w.expansion.CodeList.OpenGrammars {
		reason := "" // HL7's tests require this
		if !open.HasFilter {
			reason = fmt.Sprintf("The code System '%s' has a grammar and so has infinite members", w.expansion.Definitions.Systems.CodeSystems[open.CodeSystem].URL)
		}
		definitions.AppendUnique(&reasons, reason)
	}
	for _, index := range w.expansion.CodeList.UserAssignedOmitted {
		reasons = append(reasons, "User-assigned codes of the code system "+w.expansion.Definitions.Systems.CodeSystems[index].URL+" are not listed")
	}
	return reasons
}

// appendExpansionExtensions appends expansion.extension: reasons why the expansion is incomplete, and the properties that
// entries have. The properties are known only after the entries have been written.
func (w *Writer) appendExpansionExtensions(dst []byte) []byte {
	list := fhirjson.Array{Name: "extension"}
	for _, reason := range w.incompleteReasons() {
		if list.IsEmpty() {
			dst = append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase+`valueset-unclosed","valueBoolean":true}`...)
		}
		if reason != "" {
			dst = append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase+`valueset-unclosed-reason","valueString":`...)
			dst = append(fhirjson.AppendString(dst, reason), '}')
		}
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

// appendParameters appends expansion.parameter: parameters of the request, definitions used, and warnings about them.
func (w *Writer) appendParameters(dst []byte) []byte {
	list := &parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	q, x := &w.expansion.query, w.expansion.CodeList
	if q.Filter != "" {
		list.addText("filter", "valueString", q.Filter)
	}
	if w.expansion.corrected != "" {
		list.addText("corrected-filter", "valueString", w.expansion.corrected)
	}
	if language := q.Language.Preferred(w.expansion.valueSet); language != "" {
		list.addText("displayLanguage", "valueCode", language)
	}
	for _, designation := range q.Designations {
		list.addText("designation", "valueString", designation)
	}
	list.addChoices(q)
	if x.MergesVersions {
		list.addChoice("versionsMatch", parameters.Yes)
	}
	if q.Date != "" {
		list.addText("date", "valueDateTime", q.Date)
	}
	list.addNumber("offset", q.Offset)
	list.addNumber("count", q.Count)
	for _, excluded := range q.Versions.Excluded {
		list.addText("exclude-system", "valueUri", excluded)
	}
	for _, rule := range x.AppliedParameters {
		list.addText(rule.Name, "valueUri", rule.Value)
	}
	w.appendUsedDefinitions(list)
	return list.list.End(list.dst)
}

// addChoices adds the boolean parameters of the request.
func (l *parameterList) addChoices(q *Query) {
	l.addChoice("excludeNested", q.ExcludeNested)
	l.addChoice("activeOnly", q.ActiveOnly)
	l.addChoice("includeDesignations", q.IncludeDesignations)
	l.addChoice("includeDefinition", q.IncludeDefinition)
	l.addChoice("excludeNotForUI", q.ExcludeNotForUI)
	l.addChoice("excludePostCoordinated", q.ExcludePostCoordinated)
}

func (w *Writer) appendUsedDefinitions(list *parameterList) {
	for _, index := range w.expansion.CodeList.CodeSystems {
		cs := w.expansion.Definitions.Systems.CodeSystems[index]
		list.addText("used-codesystem", "valueUri", cs.Canonical())
		if cs.Content != definitions.ContentComplete {
			list.addText("used-"+string(cs.Content), "valueUri", cs.Canonical())
		}
		list.addWarning(&cs.Definition, w.expansion.valueSet)
		if cs.Copyright != "" && w.expansion.query.IncludeDefinition == parameters.Yes {
			list.addText("copyright", "valueString", cs.Copyright)
		}
	}
	for _, b := range w.expansion.CodeList.GrammarBases {
		if b.ValueSet != nil { // nil if filters select common codes; other servers do not warn then
			list.addWarning(&b.ValueSet.Definition, w.expansion.valueSet)
		}
	}
	for _, unchecked := range w.expansion.CodeList.UncheckedSystems {
		list.addText("warning-unknown-system", "valueUri", unchecked)
	}
	for _, vs := range w.expansion.CodeList.ValueSets {
		list.addText("used-valueset", "valueUri", vs.Canonical())
		list.addStoredExpansion(vs)
		list.addWarning(&vs.Definition, w.expansion.valueSet)
	}
	list.addStoredExpansion(w.expansion.valueSet)
	list.addWarning(&w.expansion.valueSet.Definition, w.expansion.valueSet)
	if len(w.expansion.CodeList.Entries) == 0 {
		return // no text of a supplement is used
	}
	var supplements []uint32
	for _, s := range w.expansion.CodeList.Supplements {
		definitions.AppendUnique(&supplements, s.Supplement)
	}
	for _, index := range supplements {
		list.addText("used-supplement", "valueUri", w.expansion.Definitions.Systems.CodeSystems[index].Canonical())
	}
}

// parameterList writes expansion.parameter.
type parameterList struct {
	dst  []byte
	list fhirjson.Array
}

func (l *parameterList) addText(name, kind, value string) {
	l.dst = append(fhirjson.AppendString(l.beginParameter(name, kind), value), '}')
}

func (l *parameterList) addNumber(name string, n *int) {
	if n != nil {
		l.dst = append(strconv.AppendInt(l.beginParameter(name, "valueInteger"), int64(*n), 10), '}')
	}
}

func (l *parameterList) addChoice(name string, c parameters.Choice) {
	if c != parameters.Unset {
		l.dst = append(strconv.AppendBool(l.beginParameter(name, "valueBoolean"), c == parameters.Yes), '}')
	}
}

// beginParameter appends a parameter up to and excluding its value.
func (l *parameterList) beginParameter(name, kind string) []byte {
	dst := append(append(l.list.Next(l.dst), `{"name":"`...), name...)
	return append(append(append(dst, `","`...), kind...), '"', ':')
}

// addStoredExpansion adds the identifier of the value set's stored expansion, if it has one.
func (l *parameterList) addStoredExpansion(vs *definitions.ValueSet) {
	if vs.Stored != nil {
		l.addText("used-expansion", "valueUri", cmp.Or(vs.Stored.Identifier, vs.Canonical()))
	}
}

// addWarning adds a warning if the status of a definition requires one.
func (l *parameterList) addWarning(d *definitions.Definition, vs *definitions.ValueSet) {
	if name := d.StatusWarning(vs); name != "" {
		l.addText("warning-"+name, "valueUri", d.Canonical())
	}
}

// appendContains appends expansion.contains as a list or a tree.
func (w *Writer) appendContains(dst []byte) []byte {
	if w.tree != nil {
		return w.appendTree(dst, w.tree.Root)
	}
	if len(w.expansion.page) <= maxPrefetched {
		w.prefetch()
	}
	list := fhirjson.Array{Name: "contains"}
	for i := range w.expansion.page {
		dst = w.flush(append(w.appendEntry(list.Next(dst), i), '}'))
	}
	return list.End(dst)
}

// maxPrefetched is the maximum number of entries on a page for prefetching.
const maxPrefetched = 256

// prefetch reads the first bytes of all entries on a page in advance, so that the cache misses for scattered memory overlap.
func (w *Writer) prefetch() {
	var sum byte
	for _, e := range w.expansion.page {
		if e.HasConceptNumber() {
			code, display, flags := w.expansion.Definitions.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(codesystem.ConceptAt(e.Concept))
			sum += byte(len(code)+len(display)) + byte(flags)
		}
	}
	w.prefetched = sum // so that the compiler does not remove the reads
}

// appendTree appends the entry first and its following siblings, each with its children.
func (w *Writer) appendTree(dst []byte, first uint32) []byte {
	list := fhirjson.Array{Name: "contains"}
	for i := first; i != definitions.None; i = w.tree.Next[i] {
		dst = w.appendEntry(list.Next(dst), int(i))
		dst = w.flush(append(w.appendTree(dst, w.tree.Child[i]), '}'))
	}
	return list.End(dst)
}

// appendEntry appends the i-th entry on the page as an entry of expansion.contains, except for the closing brace.
func (w *Writer) appendEntry(dst []byte, i int) []byte {
	l, e := w.expansion.Definitions, w.expansion.page[i]
	code, display, flags := l.CodeAndDisplay(e)
	dst = append(dst, '{')
	if w.expansion.hasDetails || flags&(codesystem.FlagHasStatus|codesystem.FlagHasExtensions) != 0 || e.ListedRow() != 0 {
		dst = w.extensions.append(dst, l.Locate(e), flags)
	}
	dst = w.appendSystem(dst, l.SystemOf(e))
	if flags&codesystem.FlagAbstract != 0 {
		dst = append(dst, `,"abstract":true`...)
	}
	if flags&codesystem.FlagInactive != 0 {
		dst = append(dst, `,"inactive":true`...)
	}
	if w.expansion.isVersioned(e) {
		dst = fhirjson.AppendMember(dst, "version", l.Systems.CodeSystems[e.CodeSystem].Version)
	}
	dst = fhirjson.AppendString(append(dst, `,"code":`...), code)
	if !w.expansion.hasDetails {
		return fhirjson.AppendMember(dst, "display", display)
	}
	return w.appendTexts(dst, e)
}

// appendSystem appends the code system of an entry. If it is that of the previous entry, its text is copied.
func (w *Writer) appendSystem(dst []byte, system uint32) []byte {
	if last := w.lastSystem; last.to > 0 && last.system == system {
		return append(dst, dst[last.from:last.to]...)
	}
	w.lastSystem.system, w.lastSystem.from = system, len(dst)
	dst = fhirjson.AppendString(append(dst, `"system":`...), w.expansion.Definitions.Systems.List[system].URL)
	w.lastSystem.to = len(dst)
	return dst
}

// appendTexts appends the display and the designations of an entry.
func (w *Writer) appendTexts(dst []byte, e definitions.Entry) []byte {
	if w.expansion.hasOneText(e) {
		return fhirjson.AppendMember(dst, "display", w.expansion.Definitions.Display(e))
	}
	w.texts = w.expansion.texts(w.texts[:0], e)
	display := w.expansion.languages.PreferredDisplay(w.texts)
	if display >= 0 {
		dst = fhirjson.AppendMember(dst, "display", w.texts[display].Value)
	}
	if w.expansion.query.includesDesignations() {
		dst = w.expansion.query.appendDesignations(dst, w.texts, display)
	}
	return dst
}

// includesDesignation reports whether a designation is requested by its use or by its language, as in urn:ietf:bcp:47|de.
func (q *Query) includesDesignation(t *codesystem.Text) bool {
	return len(q.Designations) == 0 || slices.ContainsFunc(q.Designations, func(token string) bool {
		system, code := outcome.SplitCanonical(token)
		return system == "urn:ietf:bcp:47" && code == t.Language || t.Use.Code != "" && system == t.Use.System && code == t.Use.Code
	})
}

// appendDesignations appends contains.designation, which contains all requested texts except the display.
func (q *Query) appendDesignations(dst []byte, texts []codesystem.Text, display int) []byte {
	list := fhirjson.Array{Name: "designation"}
	for i := range texts {
		t := &texts[i]
		same := display >= 0 && bytes.Equal(t.Value, texts[display].Value) && t.Extension == nil
		redundant := same && (t.IsDisplay || t.Language == "" && t.Use == (codesystem.Use{}))
		if i != display && !redundant && q.includesDesignation(t) {
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
	for _, kind := range copiedFromSystem {
		if own[kind] == nil {
			dst = appendCopied(dst, &list, kind, system[kind])
		}
	}
	for _, kind := range copiedFromValueSet {
		dst = appendCopied(dst, &list, kind, own[kind])
	}
	for _, value := range w.alternates {
		dst = appendCopied(dst, &list, codesystem.ExtensionAlternate, value)
	}
	dst = w.appendProperties(dst, &list, e, flags, system, own)
	if list.IsEmpty() {
		return dst
	}
	dst = append(list.End(dst), ',')
	return slices.Delete(dst, start, start+1) // removes the leading comma
}

// Extensions that are copied from code systems and value sets.
var (
	copiedFromSystem   = []codesystem.ExtensionKind{codesystem.ExtensionStyle, codesystem.ExtensionXHTML, codesystem.ExtensionDescriptionID}
	copiedFromValueSet = []codesystem.ExtensionKind{
		codesystem.ExtensionDeprecated, codesystem.ExtensionStandardsStatus, codesystem.ExtensionConceptDefinition, codesystem.ExtensionDescriptionID, codesystem.ExtensionStyle, codesystem.ExtensionXHTML,
	}
)

// appendCopied appends an extension unless its value is nil.
func appendCopied(dst []byte, list *fhirjson.Array, kind codesystem.ExtensionKind, value []byte) []byte {
	if value == nil {
		return dst
	}
	dst = append(append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase...), copiedNames[kind]...)
	dst = append(append(dst, '"', ','), value...)
	return append(dst, '}')
}

// copiedNames contains the ends of the copied extensions' URLs.
var copiedNames = map[codesystem.ExtensionKind]string{
	codesystem.ExtensionStyle: "rendering-style", codesystem.ExtensionXHTML: "rendering-xhtml", codesystem.ExtensionDeprecated: "valueset-deprecated",
	codesystem.ExtensionStandardsStatus: "structuredefinition-standards-status", codesystem.ExtensionConceptDefinition: "valueset-concept-definition",
	codesystem.ExtensionDescriptionID: "coding-sctdescid", codesystem.ExtensionAlternate: "codesystem-alternate",
}

// extensionsOf returns the extensions in the code system and its supplements, and those in the value set that lists the entry.
func (w *extensionWriter) extensionsOf(e definitions.LocatedEntry) (system, own extensionValues) {
	w.alternates = w.alternates[:0]
	for cs, concept := range w.expansion.Definitions.DescribingSystems(e, w.expansion.CodeList.Supplements) {
		w.extensions = cs.Concepts.Annotations.AppendExtensions(w.extensions[:0], concept)
		for _, x := range w.extensions {
			system[x.Kind] = x.Value
			if x.Kind == codesystem.ExtensionAlternate {
				w.alternates = append(w.alternates, x.Value)
			}
		}
	}
	if e.ListedRow() != 0 {
		table, _ := w.expansion.Definitions.TableOfRow(e.Row)
		for _, x := range table.ExtensionsOf(e.Row) {
			own[x.Kind] = table.Texts.At(x.Value)
		}
	}
	return system, own
}

// appendProperties appends the properties of an entry: its status unless it is active, extensions that are properties in R5,
// and the requested properties.
func (w *extensionWriter) appendProperties(dst []byte, list *fhirjson.Array, e definitions.LocatedEntry, flags codesystem.Flags, system, own extensionValues) []byte {
	if flags&codesystem.FlagHasStatus != 0 {
		if status := w.expansion.Definitions.Systems.CodeSystems[e.CodeSystem].Concepts.Annotations.Status(e.LocatedConcept); status != "" {
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
	if len(w.expansion.query.Properties) == 0 || !e.HasConcept() {
		return dst
	}
	cs := w.expansion.Definitions.Systems.CodeSystems[e.CodeSystem]
	if meaning := cs.Concepts.Annotations.Definition(e.LocatedConcept); meaning != nil && slices.Contains(w.expansion.query.Properties, "definition") {
		dst = w.beginProperty(dst, list, codesystem.Property{Code: "definition", URI: codesystem.PropertyBase + "definition"}, "valueString")
		dst = append(fhirjson.AppendString(dst, meaning), propertyEnd...)
	}
	if e.HasConceptNumber() {
		dst = w.appendRelated(dst, list, "parent", cs, cs.Concepts.Hierarchy.Parents(e.Concept))
		dst = w.appendRelated(dst, list, "child", cs, cs.Concepts.Hierarchy.Children(e.Concept))
	}
	for cs, concept := range w.expansion.Definitions.DescribingSystems(e, w.expansion.CodeList.Supplements) {
		dst = w.appendRequested(dst, list, cs, concept)
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

// appendRelated appends the codes of parents or children if the property is requested by name. FHIR defines these properties
// for every code system (R4 §4.8.10), regardless of how its hierarchy is represented.
func (w *extensionWriter) appendRelated(dst []byte, list *fhirjson.Array, name string, cs *definitions.CodeSystem, related []uint32) []byte {
	if !slices.Contains(w.expansion.query.Properties, name) {
		return dst
	}
	for _, other := range related {
		dst = w.beginProperty(dst, list, codesystem.Property{Code: name, URI: codesystem.PropertyBase + name}, "valueCode")
		dst = append(fhirjson.AppendString(dst, cs.Concepts.Code(codesystem.ConceptAt(other))), propertyEnd...)
	}
	return dst
}

// appendRequested appends the requested properties of a concept; * requests all of them.
func (w *extensionWriter) appendRequested(dst []byte, list *fhirjson.Array, cs *definitions.CodeSystem, c codesystem.Concept) []byte {
	all := slices.Contains(w.expansion.query.Properties, "*")
	w.values = cs.Concepts.AppendValues(w.values[:0], c)
	for i := range w.values {
		v := &w.values[i]
		p := v.Property
		covered := p.IsStandard("status") && !strings.EqualFold(string(v.Text), "active") ||
			(p.Code == "parent" || p.Code == "child") && slices.Contains(w.expansion.query.Properties, p.Code)
		if covered || !all && !slices.Contains(w.expansion.query.Properties, p.Code) {
			continue
		}
		dst = w.beginProperty(dst, list, codesystem.Property{Code: p.Code, URI: p.URI}, v.Member)
		dst = append(v.AppendJSON(dst), propertyEnd...)
	}
	return dst
}

// beginProperty appends a property of an entry up to and excluding its value. It also declares the property.
func (w *extensionWriter) beginProperty(dst []byte, list *fhirjson.Array, p codesystem.Property, member string) []byte {
	if !slices.ContainsFunc(w.declared, func(d codesystem.Property) bool { return d.Code == p.Code }) {
		w.declared = append(w.declared, p)
	}
	dst = append(list.Next(dst), `{"url":"`+propertyValue+`","extension":[{"url":"code","valueCode":`...)
	dst = append(fhirjson.AppendString(dst, p.Code), `},{"url":"value","`...)
	return append(append(dst, member...), '"', ':')
}

// propertyEnd is the JSON that follows the value of a property.
const propertyEnd = "}]}"

// extensionWriter writes the extensions of entries, including those that represent R5's properties.
type extensionWriter struct {
	expansion  *Expansion
	declared   []codesystem.Property // properties that entries on the page have
	extensions []codesystem.Extension
	alternates [][]byte // alternate codes of the entry
	values     []codesystem.Value
}

// extensionValues contains the extensions of a concept by kind, as JSON members.
type extensionValues [codesystem.ExtensionReplacedBy + 1][]byte

// URLs of the extensions that represent R5's expansion.property and contains.property.
const (
	propertyDeclaration = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property"
	propertyValue       = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property"
)
