package expansion

import (
	"crypto/sha1"
	"encoding/hex"
	"iter"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Expansion is the requested page of a value set's expansion. It is safe for concurrent use.
type Expansion struct {
	Definitions *definitions.Set // definitions on which the expansion is based
	valueSet    *definitions.ValueSet
	CodeList    *compose.CodeList // codes on all pages
	query       Query             // includes defaults from the value set
	languages   codesystem.Languages
	page        []definitions.Entry
	total       int
	corrected   string // corrected filter; "" if nothing was corrected
	hasDetails  bool   // entries may need more than a code and a display
}

// Code is an entry of ValueSet.expansion.contains.
type Code struct {
	// System is the URL of the code system. Version is empty unless the value set has codes from several versions.
	System, Version string

	// Code is the code. Display is the display in the requested language, or empty if there is none.
	Code, Display string

	// Abstract means that users must not select the code. Inactive means that the code should no longer be used.
	Abstract, Inactive bool
}

// Total returns the number of codes on all pages.
func (x *Expansion) Total() int { return x.total }

// Len returns the number of codes on the page.
func (x *Expansion) Len() int { return len(x.page) }

// Codes returns the codes on the page in order. Children follow their parents.
func (x *Expansion) Codes() iter.Seq[Code] {
	return func(yield func(Code) bool) {
		x.Definitions.Use(func() {
			for _, e := range x.page {
				if !yield(x.code(e)) {
					return
				}
			}
		})
	}
}

func (x *Expansion) code(e definitions.Entry) Code {
	l := x.Definitions
	flags := l.Flags(e)
	c := Code{
		System: l.Systems.List[l.SystemOf(e)].URL, Code: string(l.Code(e)),
		Abstract: flags&codesystem.FlagAbstract != 0, Inactive: flags&codesystem.FlagInactive != 0,
	}
	if x.isVersioned(e) {
		c.Version = l.Systems.CodeSystems[e.CodeSystem].Version
	}
	if x.hasOneText(e) {
		c.Display = string(l.Display(e))
	} else if texts := x.texts(nil, e); x.languages.PreferredDisplay(texts) >= 0 {
		c.Display = string(texts[x.languages.PreferredDisplay(texts)].Value)
	}
	return c
}

// isVersioned reports whether the version is written for an entry.
func (x *Expansion) isVersioned(e definitions.Entry) bool {
	return x.CodeList.HasVersions && e.HasConcept()
}

// hasOneText reports whether the default display is the only text needed for an entry.
func (x *Expansion) hasOneText(e definitions.Entry) bool {
	return !x.hasDetails || e.ListedRow() == 0 && e.HasConcept() && !x.languages.ExcludesOthers && len(x.CodeList.Supplements) == 0 &&
		x.Definitions.Flags(e)&codesystem.FlagHasDesignations == 0
}

// texts appends the displays and designations of an entry to dst.
func (x *Expansion) texts(dst []codesystem.Text, e definitions.Entry) []codesystem.Text {
	return x.Definitions.AppendTexts(dst, x.Definitions.Locate(e), x.valueSet.Language, x.CodeList.Supplements)
}

// New returns the expansion for q. expansions caches lists of codes. b limits the cost.
func New(l *definitions.Set, expansions *compose.CodeListCache, q Query, b *budget.Budget) (*Expansion, error) {
	x := &Expansion{query: q}
	err := x.query.Check()
	if err != nil {
		return nil, err
	}
	if x.Definitions, x.valueSet, err = expansions.ValueSetFor(l, &x.query.ValueSetRef, &x.query.Rules, b); err != nil {
		return nil, err
	}
	if x.Definitions.Use(func() { err = x.expand(expansions, b) }); err != nil {
		return nil, err
	}
	return x, nil
}

func (x *Expansion) expand(expansions *compose.CodeListCache, b *budget.Budget) (err error) {
	q := &x.query
	if err := q.ApplyDefaults(x.valueSet.Defaults); err != nil {
		return err
	}
	e := &compose.Expander{Definitions: x.Definitions, Cache: expansions, Rules: &q.Rules, Budget: b}
	if x.CodeList, err = e.Codes(x.valueSet); err != nil {
		return err
	}
	if languages := q.Language.Preferred(x.valueSet); languages != "" {
		x.languages = codesystem.ParseLanguages(languages)
	}
	if err := x.choosePage(b); err != nil {
		return err
	}
	if limit := q.Limits.MaxEntries(); len(x.page) > limit && q.subset.hasCodes() {
		return newTooCostlyError(x.valueSet, limit)
	}
	supplements := len(x.CodeList.Supplements)
	if err := b.Charge(len(x.page) * (supplements + (len(q.Designations)+len(q.Properties))/requestedPerStep)); err != nil {
		return err
	}
	x.hasDetails = q.includesDesignations() || len(q.Properties) > 0 || !x.languages.IsEmpty() || supplements > 0
	return nil
}

// requestedPerStep is the number of requested designations and properties with which a code is compared in one budget step.
const requestedPerStep = 4

// choosePage selects the entries on the requested page and counts all matches.
func (x *Expansion) choosePage(b *budget.Budget) (err error) {
	if filter := textindex.NewFilter(x.query.Filter, x.Definitions.Synonyms()); filter != nil {
		from, to := x.query.window(maxInt32)
		x.page, x.total, err = compose.Search(x.Definitions, x.CodeList, filter, x.languages.List(), from, to, b)
		x.corrected = filter.Corrected()
		return err
	}
	from, to := x.query.window(len(x.CodeList.Entries))
	x.page, x.total = x.CodeList.Entries[from:to], len(x.CodeList.Entries)
	return nil
}

// Tag returns the entity tag of a response. It consists of the expansion's identifier, which covers the content, the load time
// of the library, the format and the requested subset.
func (w *Writer) Tag(xml, pretty bool) string {
	tag := append(append(make([]byte, 0, 64), '"'), w.identifier[len("urn:uuid:"):]...)
	tag = strconv.AppendInt(append(tag, '-'), w.expansion.Definitions.Loaded.Unix(), 36)
	if xml {
		tag = append(tag, 'x')
	}
	if pretty {
		tag = append(tag, 'p')
	}
	if w.isGET {
		tag = append(tag, 'l')
	}
	return string(append(w.expansion.query.subset.appendTag(tag), '"'))
}

// appendIdentifier appends expansion.identifier, a UUID version 5 derived from the value set, its content and the parameters.
// Identical queries therefore return identical bytes.
func appendIdentifier(dst []byte, x *Expansion, parameters []byte) []byte {
	name := append(make([]byte, 0, 512), expansionNamespace[:]...)
	name = append(append(append(name, x.valueSet.URL...), '|'), x.valueSet.Version...)
	name = append(name, 0)
	name = append(append(name, x.CodeList.Digest[:]...), parameters...)
	for _, p := range x.query.Properties { // Properties are not part of expansion.parameter
		name = append(append(name, 0), p...)
	}
	return appendUUID(dst, name)
}

// appendUUID appends, as a URN, the UUID version 5 of namespaced, which is a namespace followed by a name.
func appendUUID(dst, namespaced []byte) []byte {
	id := uuid5(namespaced)
	dst = hex.AppendEncode(append(dst, "urn:uuid:"...), id[:4])
	for _, part := range [...][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		dst = hex.AppendEncode(append(dst, '-'), part)
	}
	return dst
}

// expansionNamespace is the namespace of expansion identifiers: the UUID version 5 of a URL.
var expansionNamespace = uuid5([]byte("\x6b\xa7\xb8\x11\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8" + // namespace of URLs (RFC 9562 §6.6)
	"https://github.com/caddy-fhir/caddy-fhir/terminology#expansion"))

// uuid5 returns the UUID version 5 (RFC 9562 §5.5) of namespaced, which is a namespace followed by a name. The RFC requires
// SHA-1; its strength does not matter here.
func uuid5(namespaced []byte) (id [16]byte) {
	sum := sha1.Sum(namespaced)
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return id
}
