package expansion

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Parameter is one of ValueSet.expansion.parameter.
type Parameter struct {
	// Name is the name, and Value the value of whatever type, as text.
	Name, Value string
}

// Parameters returns expansion.parameter: what was asked for, the definitions used, and warnings about them.
func (x *Expansion) Parameters() []Parameter {
	var written []byte
	x.Library.Use(func() { written = NewWriter(x, false).echo })
	_, array, _ := bytes.Cut(written, []byte{':'})
	r, list := fhirjson.ReaderOf(array), []Parameter{}
	_ = r.Array(func() error { // no error: this was written above
		var in parameters.Input
		err := r.Object(func(name []byte) error { return in.Member(r, name, 0) })
		list = append(list, Parameter{Name: in.Name, Value: in.Value})
		return err
	})
	return list
}

// WriteTo writes the answer while it is made, in a buffer that may be larger afterwards.
func (w *Writer) WriteTo(out io.Writer, buffer *[]byte) error {
	w.stream.out = out
	*buffer = w.Append((*buffer)[:0])
	w.stream.write(*buffer)
	if w.stream.failed != nil {
		return fmt.Errorf("writing the answer: %w", w.stream.failed)
	}
	return nil
}

// NewWriter prepares the answer to a GET or a POST.
func NewWriter(x *Expansion, get bool) *Writer {
	w := &Writer{x: x, get: get, extensions: extensionWriter{x: x}}
	w.shape = w.chooseShape()
	w.echo = w.appendParameters(w.room.echo[:0])
	w.identifier = appendIdentifier(w.room.identifier[:0], w.x, w.echo)
	return w
}

// chooseShape returns the tree of the answer, or nil for a list. A page is a list, and so is the result of a text filter,
// unless the value set itself has a filter: then its concepts keep their places.
func (w *Writer) chooseShape() *compose.Tree {
	q, x := &w.x.query, w.x.List
	if !x.Tree || !w.wantsTree() || len(w.x.page) < w.x.total || q.Offset != nil && *q.Offset > 0 {
		return nil
	}
	if q.Filter == "" {
		return x.Shape
	}
	if !x.Filtered || q.Count != nil {
		return nil
	}
	return compose.Shape(w.x.Library, w.x.page, true)
}

// wantsTree reports whether the answer may be a tree. A GET must itself say excludeNested=false, since most such clients
// read the top level alone and would lose codes.
func (w *Writer) wantsTree() bool {
	if w.get {
		return w.x.query.ExcludeNested == parameters.No && w.x.query.Sent("excludeNested")
	}
	return w.x.query.ExcludeNested != parameters.Yes
}

// Append appends the ValueSet as JSON, by hand, so that an answer costs no more than copying its text.
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
	if w.x.query.paged() || !hasCodes || len(w.x.List.Based) == 0 { // of a grammar it is unknown; a page says whether there are more
		dst = strconv.AppendInt(append(dst, `,"total":`...), int64(w.x.total), 10)
	}
	if !hasCodes {
		return append(dst, '}')
	}
	if w.x.query.paged() || w.get { // R4 has the offset where there is paging
		dst = appendNumber(append(dst, `,"offset":`...), w.x.query.Offset)
	}
	dst = w.appendContains(append(dst, w.echo...))
	return append(w.appendExpansionExtensions(dst), '}')
}

// appendValueSet appends the members that identify the value set, or all of them.
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
	member("status", cmp.Or(vs.Status, "unknown")) // R4 requires one
	if vs.Experimental != nil && part.Has("experimental") {
		dst = strconv.AppendBool(append(dst, `,"experimental":`...), *vs.Experimental)
	}
	if !whole {
		return dst
	}
	member("date", vs.Date)
	member("publisher", vs.Publisher)
	for _, m := range vs.Rest {
		if part.Has(m.Name) {
			dst = m.Append(append(dst, ','))
		}
	}
	return dst
}

// unclosed returns why the expansion may lack codes. Other servers have the same wording, which clients may look for.
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

// appendExpansionExtensions appends expansion.extension: incomplete code systems, and the properties of the entries, which
// are known only when those have been written.
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
