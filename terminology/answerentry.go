package terminology

import (
	"slices"

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
	for _, e := range w.page {
		dst = w.flush(append(w.appendEntry(list.Next(dst), e), '}'))
	}
	return list.End(dst)
}

// maxPrefetched is up to how many entries of a page are read beforehand.
const maxPrefetched = 256

// fetch reads the first bytes of what an entry shows, for all of a page at once. They are anywhere in memory, and
// would be waited for one after the other otherwise.
func (w *expansionWriter) fetch() {
	var sum byte
	for _, e := range w.page {
		if e.concept != none {
			code, display, flags := w.library.codeSystems[e.codeSystem].Concept(e.concept)
			sum += byte(len(code)+len(display)) + byte(flags)
		}
	}
	w.prefetched = sum // so that reading is not left out
}

// appendTree appends an entry and those that follow it, each with the entries within it.
func (w *expansionWriter) appendTree(dst []byte, first uint32) []byte {
	list := fhirjson.Array{Name: "contains"}
	for i := first; i != none; i = w.shape.next[i] {
		dst = w.appendEntry(list.Next(dst), w.page[i])
		dst = w.flush(append(w.appendTree(dst, w.shape.child[i]), '}'))
	}
	return list.End(dst)
}

// appendEntry appends one of expansion.contains, up to the brace that ends it.
func (w *expansionWriter) appendEntry(dst []byte, e entry) []byte {
	l := w.library
	code, display, flags := l.coded(e)
	dst = append(dst, '{')
	if w.detailed || flags&(codesystem.FlagStatus|codesystem.FlagExtended) != 0 || e.listed != 0 {
		dst = w.appendEntryExtensions(dst, e, flags)
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
	dst = append(dst, `,"code":`...)
	dst = fhirjson.AppendString(dst, code)
	if !w.detailed {
		return fhirjson.AppendMember(dst, "display", display)
	}
	return w.appendTexts(dst, e)
}

// appendSystem appends the code system of an entry, which mostly is that of the one before.
func (w *expansionWriter) appendSystem(dst []byte, system uint32) []byte {
	if last := w.lastSystem; last.to > 0 && last.system == system {
		return append(dst, dst[last.from:last.to]...)
	}
	w.lastSystem.system, w.lastSystem.from = system, len(dst)
	dst = fhirjson.AppendString(append(dst, `"system":`...), w.library.systems[system].url)
	w.lastSystem.to = len(dst)
	return dst
}

// appendTexts appends display and designations where these have to be chosen.
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

// extensionValues are the values of the extensions of a concept, by kind, as JSON members.
type extensionValues [codesystem.ExtensionReplacedBy + 1][]byte

// appendEntryExtensions appends the extensions of an entry with a comma after them: those that are shown as
// they are, and its properties.
func (w *expansionWriter) appendEntryExtensions(dst []byte, e entry, flags codesystem.Flags) []byte {
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
	dst = w.appendAlternates(dst, &list, e)
	dst = w.appendProperties(dst, &list, e, flags, system, own)
	if list.IsEmpty() {
		return dst
	}
	dst = append(list.End(dst), ',')
	return slices.Delete(dst, start, start+1) // the comma before
}

// appendAlternates appends the other codes that a code system, or a supplement to it, has for a concept.
func (w *expansionWriter) appendAlternates(dst []byte, list *fhirjson.Array, e entry) []byte {
	if e.concept == none {
		return dst
	}
	of := func(cs *codeSystem, concept uint32) {
		w.extended = cs.AppendExtensions(w.extended[:0], concept)
		for _, x := range w.extended {
			if x.Kind == codesystem.ExtensionAlternate {
				dst = appendShown(dst, list, x.Kind, x.Value)
			}
		}
	}
	cs := w.library.codeSystems[e.codeSystem]
	of(cs, e.concept)
	for _, s := range w.list.supplements {
		by := w.library.codeSystems[s.by]
		if concept, ok := by.Locate(cs.Code(e.concept)); ok && s.of == e.codeSystem {
			of(by, concept)
		}
	}
	return dst
}

// Extensions that are shown as they are, where a code system or a value set has them.
var (
	shownFromSystem   = []codesystem.ExtensionKind{codesystem.ExtensionStyle, codesystem.ExtensionXHTML, codesystem.ExtensionDescriptionID}
	shownFromValueSet = []codesystem.ExtensionKind{
		codesystem.ExtensionDeprecated, codesystem.ExtensionStandardsStatus, codesystem.ExtensionConceptDefinition, codesystem.ExtensionDescriptionID, codesystem.ExtensionStyle, codesystem.ExtensionXHTML,
	}
)

// appendShown appends an extension, if it has a value.
func appendShown(dst []byte, list *fhirjson.Array, kind codesystem.ExtensionKind, value []byte) []byte {
	if value == nil {
		return dst
	}
	dst = append(append(list.Next(dst), `{"url":"`+fhirjson.ExtensionBase...), shownNames[kind]...)
	dst = append(append(dst, '"', ','), value...)
	return append(dst, '}')
}

// shownNames are the names of the extensions that are shown as they are.
var shownNames = map[codesystem.ExtensionKind]string{
	codesystem.ExtensionStyle: "rendering-style", codesystem.ExtensionXHTML: "rendering-xhtml", codesystem.ExtensionDeprecated: "valueset-deprecated",
	codesystem.ExtensionStandardsStatus: "structuredefinition-standards-status", codesystem.ExtensionConceptDefinition: "valueset-concept-definition",
	codesystem.ExtensionDescriptionID: "coding-sctdescid", codesystem.ExtensionAlternate: "codesystem-alternate",
}

// extensionsOf returns the extensions of an entry: those that the code system and the supplements to it
// have, and those of the value set that lists it.
func (w *expansionWriter) extensionsOf(e entry) (system, own extensionValues) {
	if e.concept != none {
		cs := w.library.codeSystems[e.codeSystem]
		w.collect(&system, cs, e.concept)
		for _, s := range w.list.supplements {
			by := w.library.codeSystems[s.by]
			if concept, ok := by.Locate(cs.Code(e.concept)); ok && s.of == e.codeSystem {
				w.collect(&system, by, concept)
			}
		}
	}
	if e.listed != 0 {
		table, _ := w.library.row(e.listed)
		for _, x := range table.extensionsOf(e.listed) {
			own[x.Kind] = table.texts.At(x.Value)
		}
	}
	return system, own
}

// collect takes over the extensions of a concept.
func (w *expansionWriter) collect(v *extensionValues, cs *codeSystem, concept uint32) {
	w.extended = cs.AppendExtensions(w.extended[:0], concept)
	for _, x := range w.extended {
		v[x.Kind] = x.Value
	}
}
