package terminology

import (
	"cmp"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// expansionWriter writes the ValueSet that $expand returns.
type expansionWriter struct {
	*Expansion
	get   bool  // a list, unless a tree is asked for, and always an offset
	shape *tree // of the page, unless it is a list

	echo       []byte // expansion.parameter
	identifier []byte
	room       struct { // for echo, as large as it mostly is, and for identifier
		echo       [256]byte
		identifier [len("urn:uuid:") + 36]byte
	}
	stream stream

	extensions extensionWriter
	shown      []codesystem.Text
	lastSystem struct { // the one written last, and where that is
		system   uint32
		from, to int
	}
	prefetched byte
}

// newExpansionWriter prepares the writing of an expansion as the answer to a GET or to a POST.
func newExpansionWriter(x *Expansion, get bool) *expansionWriter {
	w := &expansionWriter{Expansion: x, get: get, extensions: extensionWriter{Expansion: x}}
	w.shape = w.chooseShape()
	w.echo = w.appendParameters(w.room.echo[:0])
	w.identifier = appendIdentifier(w.room.identifier[:0], w.Expansion, w.echo)
	return w
}

// chooseShape returns the tree that the answer is shown as, or nil for a list. A GET gets a tree only if it says
// excludeNested=false, since most such clients read the top level alone; no other parameter may change that, or a client
// that adds one would lose codes. A page is a list, and so is the result of a text filter, unless the value set itself
// has a filter: then its concepts keep their places.
func (w *expansionWriter) chooseShape() *tree {
	q, x := &w.query, w.list
	if !x.tree || !w.wantsTree() || len(w.page) < w.total || q.Offset != nil && *q.Offset > 0 {
		return nil
	}
	if q.Filter == "" {
		return x.shape
	}
	if !x.filtered || q.Count != nil {
		return nil
	}
	return w.library.shape(w.page, true)
}

// wantsTree reports whether the answer may be a tree. For a GET, the request must say so itself; the value set's own
// parameters do not count.
func (w *expansionWriter) wantsTree() bool {
	if w.get {
		return w.query.ExcludeNested == No && w.query.sent("excludeNested")
	}
	return w.query.ExcludeNested != Yes
}

// append appends the ValueSet as JSON. It is written by hand, so that an answer costs no more than the
// copying of its text.
func (w *expansionWriter) append(dst []byte) []byte {
	dst = append(dst, `{"resourceType":"ValueSet"`...)
	dst = w.query.subset.appendMeta(dst)
	dst = w.valueSet.append(dst, &w.query.subset, w.query.IncludeDefinition == Yes)
	if w.query.subset.has("expansion") {
		dst = w.appendExpansion(dst)
	}
	return append(dst, '}')
}

// appendExpansion appends the member expansion, or of it only how large it is.
func (w *expansionWriter) appendExpansion(dst []byte) []byte {
	dst = append(dst, `,"expansion":{"identifier":"`...)
	dst = append(dst, w.identifier...)
	dst = append(dst, `","timestamp":"`...)
	dst = w.library.loaded.AppendFormat(dst, time.RFC3339)
	dst = append(dst, `","total":`...)
	dst = strconv.AppendInt(dst, int64(w.total), 10)
	if !w.query.subset.hasCodes() {
		return append(dst, '}')
	}
	if w.query.paged() || w.get { // R4 has the offset where there is paging
		dst = append(dst, `,"offset":`...)
		dst = appendNumber(dst, w.query.Offset)
	}
	dst = append(dst, w.echo...)
	dst = w.appendContains(dst)
	dst = w.appendExpansionExtensions(dst)
	return append(dst, '}')
}

// append appends what the answer says of the value set itself: what identifies it, or all of it.
func (vs *valueSet) append(dst []byte, part *subset, whole bool) []byte {
	member := func(name, value string) {
		if part.has(name) {
			dst = fhirjson.AppendMember(dst, name, value)
		}
	}
	if whole {
		member("id", vs.id)
	}
	member("language", vs.language)
	member("url", vs.url)
	member("version", vs.version)
	member("name", vs.name)
	member("title", vs.title)
	member("status", cmp.Or(vs.status, "unknown")) // R4 requires one
	if vs.experimental != nil && part.has("experimental") {
		dst = append(dst, `,"experimental":`...)
		dst = strconv.AppendBool(dst, *vs.experimental)
	}
	if !whole {
		return dst
	}
	member("date", vs.date)
	member("publisher", vs.publisher)
	for _, m := range vs.rest {
		if !part.has(m.Name) {
			continue
		}
		dst = fhirjson.AppendString(append(dst, ','), m.Name)
		dst = append(append(dst, ':'), m.Value...)
	}
	return dst
}

// appendNumber appends a number, or 0 if it was not given.
func appendNumber(dst []byte, n *int) []byte {
	if n == nil {
		return append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(*n), 10)
}

// Extensions by which R5's expansion.property and contains.property are said in R4.
const (
	propertyDeclaration = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property"
	propertyValue       = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property"
)

// appendExpansionExtensions appends expansion.extension: that there may be more codes than those of the
// answer, and which properties the entries have. It comes last since only then these are known.
func (w *expansionWriter) appendExpansionExtensions(dst []byte) []byte {
	list := fhirjson.Array{Name: "extension"}
	for _, index := range w.list.codeSystems {
		cs := w.library.codeSystems[index]
		if cs.content == contentComplete {
			continue
		}
		if list.IsEmpty() {
			dst = append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase+`valueset-unclosed","valueBoolean":true}`...)
		}
		// The wording is that of the other servers, so that clients may look for it.
		dst = append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase+`valueset-unclosed-reason","valueString":`...)
		dst = fhirjson.AppendString(dst, "This extension is based on "+article(string(cs.content))+" of the code system "+cs.url)
		dst = append(dst, '}')
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

// article puts the indefinite article before a noun.
func article(noun string) string {
	if noun == string(contentExample) {
		return "an " + noun
	}
	return "a " + noun
}
