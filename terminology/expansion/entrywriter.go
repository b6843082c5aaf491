package expansion

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// appendContains appends expansion.contains, as a list or as a tree.
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

// maxPrefetched is the largest page whose entries are prefetched.
const maxPrefetched = 256

// fetch reads the first bytes of all entries of a page: they lie anywhere in memory, and the processor would otherwise
// wait for one after the other.
func (w *Writer) fetch() {
	var sum byte
	for _, e := range w.x.page {
		if e.IsNumbered() {
			code, display, flags := w.x.Library.Systems.CodeSystems[e.CodeSystem].Concepts.Concept(codesystem.At(e.Concept))
			sum += byte(len(code)+len(display)) + byte(flags)
		}
	}
	w.prefetched = sum // or the compiler would drop the reads
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

// appendEntry appends one of expansion.contains without its closing brace.
func (w *Writer) appendEntry(dst []byte, i int) []byte {
	l, e := w.x.Library, w.x.page[i]
	code, display, flags := l.Coded(e)
	dst = append(dst, '{')
	if w.x.detailed || flags&(codesystem.FlagStatus|codesystem.FlagExtended) != 0 || e.Own() != 0 {
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

// appendSystem appends the code system of an entry, which is copied if the previous entry has the same.
func (w *Writer) appendSystem(dst []byte, system uint32) []byte {
	if last := w.lastSystem; last.to > 0 && last.system == system {
		return append(dst, dst[last.from:last.to]...)
	}
	w.lastSystem.system, w.lastSystem.from = system, len(dst)
	dst = fhirjson.AppendString(append(dst, `"system":`...), w.x.Library.Systems.List[system].URL)
	w.lastSystem.to = len(dst)
	return dst
}

// appendTexts appends display and designations.
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
