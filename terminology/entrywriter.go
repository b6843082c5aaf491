package terminology

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// appendContains appends expansion.contains, as a list or as a tree.
func (w *expansionWriter) appendContains(dst []byte) []byte {
	if w.shape != nil {
		return w.appendTree(dst, w.shape.root)
	}
	if len(w.page) <= maxPrefetched {
		w.fetch()
	}
	list := fhirjson.Array{Name: "contains"}
	for i := range w.page {
		dst = w.flush(append(w.appendEntry(list.Next(dst), i), '}'))
	}
	return list.End(dst)
}

// maxPrefetched is the largest page whose entries are prefetched.
const maxPrefetched = 256

// fetch reads the first bytes of all entries of a page: they lie anywhere in memory, and the processor would otherwise
// wait for one after the other.
func (w *expansionWriter) fetch() {
	var sum byte
	for _, e := range w.page {
		if e.concept != none {
			code, display, flags := w.library.codeSystems[e.codeSystem].concepts.Concept(codesystem.At(e.concept))
			sum += byte(len(code)+len(display)) + byte(flags)
		}
	}
	w.prefetched = sum // or the compiler would drop the reads
}

// appendTree appends an entry and its following siblings, each with its children.
func (w *expansionWriter) appendTree(dst []byte, first uint32) []byte {
	list := fhirjson.Array{Name: "contains"}
	for i := first; i != none; i = w.shape.next[i] {
		dst = w.appendEntry(list.Next(dst), int(i))
		dst = w.flush(append(w.appendTree(dst, w.shape.child[i]), '}'))
	}
	return list.End(dst)
}

// appendEntry appends one of expansion.contains without its closing brace.
func (w *expansionWriter) appendEntry(dst []byte, i int) []byte {
	l, e := w.library, w.page[i]
	code, display, flags := l.coded(e)
	dst = append(dst, '{')
	if w.explained != nil {
		w.extensions.explanation = &w.explained.entries[i]
	}
	if w.detailed || w.explained != nil || flags&(codesystem.FlagStatus|codesystem.FlagExtended) != 0 || e.listed != 0 {
		dst = w.extensions.append(dst, l.locate(e), flags)
	}
	dst = w.appendSystem(dst, l.systemOf(e))
	if flags&codesystem.FlagAbstract != 0 {
		dst = append(dst, `,"abstract":true`...)
	}
	if flags&codesystem.FlagInactive != 0 {
		dst = append(dst, `,"inactive":true`...)
	}
	if w.isVersioned(e) {
		dst = fhirjson.AppendMember(dst, "version", l.codeSystems[e.codeSystem].version)
	}
	dst = fhirjson.AppendString(append(dst, `,"code":`...), code)
	if !w.detailed {
		return fhirjson.AppendMember(dst, "display", display)
	}
	return w.appendTexts(dst, e)
}

// appendSystem appends the code system of an entry, which is copied if the previous entry has the same.
func (w *expansionWriter) appendSystem(dst []byte, system uint32) []byte {
	if last := w.lastSystem; last.to > 0 && last.system == system {
		return append(dst, dst[last.from:last.to]...)
	}
	w.lastSystem.system, w.lastSystem.from = system, len(dst)
	dst = fhirjson.AppendString(append(dst, `"system":`...), w.library.systems[system].url)
	w.lastSystem.to = len(dst)
	return dst
}

// appendTexts appends display and designations.
func (w *expansionWriter) appendTexts(dst []byte, e entry) []byte {
	if w.hasOneText(e) {
		return fhirjson.AppendMember(dst, "display", w.library.display(e))
	}
	w.shown = w.texts(w.shown[:0], e)
	display := w.languages.Preferred(w.shown)
	if display >= 0 {
		dst = fhirjson.AppendMember(dst, "display", w.shown[display].Value)
	}
	if w.query.wantsDesignations() {
		dst = w.query.appendDesignations(dst, w.shown, display)
	}
	return dst
}
