package snomed

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// descriptions are the descriptions and text definitions of all concepts. Rows from[i]:from[i+1] belong to concept i: first
// preferred, then other synonyms, fully specified names, definitions, and inactive descriptions.
type descriptions struct {
	from      []uint32
	id        []uint64
	term      []codesystem.TextRef
	flags     []descriptionFlags
	language  []uint8 // index in languages
	module    []uint16
	effective []date

	// Values acceptability[acceptableFrom[i]:acceptableFrom[i+1]] belong to row i.
	acceptableFrom []uint32
	acceptability  []acceptability

	languages []string
	dialects  []dialect
}

// descriptionFlags contains the type of a description and whether it is inactive. It sorts the rows of a concept.
type descriptionFlags uint8

// The type is in the lowest two bits.
const (
	isSynonym descriptionFlags = iota
	isFSN
	isDefinition
	typeMask descriptionFlags = 3

	isInactive descriptionFlags = 4
)

// acceptability is an index in descriptions.dialects, and whether the description is preferred in the dialect.
type acceptability uint8

const isPreferred acceptability = 0x80

// dialect is a language reference set.
type dialect struct {
	refset   sctid
	language uint8  // language of most of its descriptions
	tag      string // BCP 47 tag
}

// descriptionLoader reads descriptions and language reference sets.
type descriptionLoader struct {
	loader   *loader
	rows     descriptions // in the order of the files
	rowIndex idIndex      // numbers of rows
	owner    []uint32     // concepts of rows, in the order of the files

	accepted []acceptedRow
}

// acceptedRow is a row of a language reference set.
type acceptedRow struct {
	row   uint32
	value acceptability
}

func (d *descriptionLoader) read() error {
	var size int64
	for _, file := range d.loader.files[descriptionFile] {
		bytes, err := d.loader.release.Size(file)
		if err != nil {
			return err
		}
		size += bytes
	}
	d.loader.table.Reserve(size)
	if err := d.loader.readAll(descriptionFile, d.readDescriptions); err != nil {
		return err
	}
	return d.loader.readAll(languageFile, d.readLanguages)
}

func (d *descriptionLoader) readDescriptions(file string) error {
	f, at, err := openRF2(d.loader.release, file, "id", "effectiveTime", "active", "moduleId", "conceptId", "languageCode", "typeId", "term")
	if err != nil {
		return err
	}
	return f.each(func() error {
		effective, active, module, err := d.loader.addComponent(f, at, "description", &d.rowIndex)
		if err != nil {
			return err
		}
		owner, err := d.loader.concept(f, at[4])
		if err != nil {
			return err
		}
		flags, err := descriptionType(f, at[6])
		if err != nil {
			return err
		}
		if !active {
			flags |= isInactive
		}
		language, err := d.languageIndex(f, f.fields[at[5]])
		r := &d.rows
		d.owner = append(d.owner, owner)
		r.term, r.flags, r.language = append(r.term, d.loader.table.AddText(f.fields[at[7]])), append(r.flags, flags), append(r.language, language)
		r.module, r.effective = append(r.module, module), append(r.effective, effective)
		return err
	})
}

// descriptionTypes are the types by flag.
var descriptionTypes = [...]sctid{isSynonym: synonymType, isFSN: fsnType, isDefinition: definitionType}

func descriptionType(f *rf2File, column int) (descriptionFlags, error) {
	id, err := f.sctid(column)
	if flag := slices.Index(descriptionTypes[:], id); flag >= 0 || err != nil {
		return descriptionFlags(max(0, flag)), err
	}
	return 0, f.errorf("typeId %d is not a description type", id)
}

func (d *descriptionLoader) languageIndex(f *rf2File, language []byte) (uint8, error) {
	if i := slices.Index(d.rows.languages, string(language)); i >= 0 {
		return uint8(i), nil
	}
	if len(d.rows.languages) > 250 || len(language) < 2 || len(language) > 8 {
		return 0, f.errorf("languageCode is not a language: %q", truncate(language))
	}
	d.rows.languages = append(d.rows.languages, string(language))
	return uint8(len(d.rows.languages) - 1), nil
}

func (d *descriptionLoader) readLanguages(file string) error {
	f, at, err := openRF2(d.loader.release, file, "active", "refsetId", "referencedComponentId", "acceptabilityId")
	if err != nil {
		return err
	}
	return f.each(func() error {
		active, err := f.isActive(at[0])
		if err != nil || !active {
			return err
		}
		id, err := f.sctid(at[2])
		if err != nil {
			return err
		}
		row := d.rowIndex.find(id)
		if row == none {
			return nil // a description of a concept that the edition leaves out
		}
		value, err := d.dialectIndex(f, at[1], row)
		if err != nil {
			return err
		}
		if id, err = f.sctid(at[3]); id == preferred {
			value |= isPreferred
		}
		d.accepted = append(d.accepted, acceptedRow{row: row, value: value})
		return err
	})
}

// dialectIndex returns the index of the dialect in a column. row is a description with this dialect.
func (d *descriptionLoader) dialectIndex(f *rf2File, column int, row uint32) (acceptability, error) {
	refset, err := f.sctid(column)
	if err != nil {
		return 0, err
	}
	if i := slices.IndexFunc(d.rows.dialects, func(x dialect) bool { return x.refset == refset }); i >= 0 {
		return acceptability(i), nil
	}
	if len(d.rows.dialects) == int(isPreferred) {
		return 0, f.errorf("more than %d language reference sets", isPreferred)
	}
	d.rows.dialects = append(d.rows.dialects, dialect{refset: refset, language: d.rows.language[row]})
	return acceptability(len(d.rows.dialects) - 1), nil
}

// sorted returns the descriptions sorted by concept. position contains the number of each concept by its number in the files.
func (d *descriptionLoader) sorted(position []uint32) descriptions {
	for row, owner := range d.owner {
		d.owner[row] = position[owner]
	}
	r := &d.rows
	owners := make([]uint32, len(d.accepted))
	for i, a := range d.accepted {
		owners[i] = a.row
	}
	acceptedFrom, accepted := groupByOwner(len(r.term), owners)
	isPreferredAnywhere := func(row uint32) bool {
		return slices.ContainsFunc(accepted[acceptedFrom[row]:acceptedFrom[row+1]], func(i uint32) bool { return d.accepted[i].value&isPreferred != 0 })
	}
	from, order := groupByOwner(len(position), d.owner)
	rank := func(row uint32) int {
		if isPreferredAnywhere(row) {
			return int(r.flags[row]) * 2
		}
		return int(r.flags[row])*2 + 1
	}
	for concept := range position {
		slices.SortStableFunc(order[from[concept]:from[concept+1]], func(a, b uint32) int { return rank(a) - rank(b) })
	}
	s := descriptions{
		from: from, term: permute(r.term, order), flags: permute(r.flags, order), language: permute(r.language, order), id: make([]uint64, len(order)),
		module: permute(r.module, order), effective: permute(r.effective, order), languages: r.languages, dialects: r.dialects,
	}
	for i, row := range order {
		s.id[i] = uint64(d.rowIndex.ids[row])
		s.acceptableFrom = append(s.acceptableFrom, uint32(len(s.acceptability)))
		for _, at := range accepted[acceptedFrom[row]:acceptedFrom[row+1]] {
			s.acceptability = append(s.acceptability, d.accepted[at].value)
		}
	}
	s.acceptableFrom = append(s.acceptableFrom, uint32(len(s.acceptability)))
	s.nameDialects()
	return s
}

// rows returns the rows of a concept.
func (d *descriptions) rows(concept uint32) (from, to uint32) {
	return d.from[concept], d.from[concept+1]
}

// acceptabilities returns the dialects of the description in a row.
func (d *descriptions) acceptabilities(row uint32) []acceptability {
	return d.acceptability[d.acceptableFrom[row]:d.acceptableFrom[row+1]]
}

// isPreferredIn reports whether the description in a row is preferred in a dialect.
func (d *descriptions) isPreferredIn(row uint32, dialect int) bool {
	return slices.Contains(d.acceptabilities(row), acceptability(dialect)|isPreferred)
}

// displayRow returns the row of the preferred term of a concept in the first of the dialects with a preferred term, or else of its
// first active description. It returns none if the concept has no active description.
func (d *descriptions) displayRow(concept uint32, dialects []int) uint32 {
	from, to := d.rows(concept)
	for _, dialect := range dialects {
		for row := from; row < to && d.flags[row] == isSynonym; row++ {
			if d.isPreferredIn(row, dialect) {
				return row
			}
		}
	}
	if from < to && d.flags[from]&isInactive == 0 {
		return from
	}
	return none
}

// dialectTags are the tags of dialects that share their language with other dialects of an edition.
var dialectTags = map[sctid]string{
	usEnglish: "en-US", gbEnglish: "en-GB", 32570271000036106: "en-AU", 19491000087109: "en-CA", 21000220103: "en-IE", 271000210107: "en-NZ",
	20581000087109: "fr-CA", 21000172104: "fr-BE", 31000172101: "nl-BE", 31000146106: "nl-NL", 450828004: "es-AR", 5641000179103: "es-UY",
}

// nameDialects sets the tags of the dialects: the language if it has only one dialect, or else language and country, or the
// identifier of the reference set (SNOMED CT with HL7 FHIR, language reference sets).
func (d *descriptions) nameDialects() {
	for i := range d.dialects {
		switch x := &d.dialects[i]; {
		case dialectTags[x.refset] != "":
			x.tag = dialectTags[x.refset]
		case d.dialectCount(x.language) == 1:
			x.tag = d.languages[x.language]
		default:
			x.tag = d.languages[x.language] + privateTag(x.refset)
		}
	}
}

// privateTag returns the private use subtags for a language reference set: -x-sctlang- and the identifier in parts of eight
// digits.
func privateTag(refset sctid) string {
	tag := "-x-sctlang"
	for part := range slices.Chunk([]byte(fmt.Sprint(uint64(refset))), 8) {
		tag += "-" + string(part)
	}
	return tag
}

// tagOf returns the language tag of a description: the language, or the dialect if the description is preferred only in that
// dialect. The description must not be the display.
func (d *descriptions) tagOf(row uint32) string {
	language, tag, count := d.language[row], "", 0
	for _, value := range d.acceptabilities(row) {
		if value&isPreferred != 0 && d.flags[row] == isSynonym {
			tag = cmp.Or(tag, d.dialects[value&^isPreferred].tag)
			count++
		}
	}
	if count == 0 || count > 1 && count == d.dialectCount(language) {
		return d.languages[language]
	}
	return tag
}

// dialectCount returns the number of dialects of a language.
func (d *descriptions) dialectCount(language uint8) (count int) {
	for _, x := range d.dialects {
		if x.language == language {
			count++
		}
	}
	return count
}

// defaultDialects returns the English dialects for displays, in order of precedence: national reference sets, according to
// isNational, precede the reference sets of the International Edition.
func (d *descriptions) defaultDialects(isNational func(refset sctid) bool) []int {
	var list []int
	for i, x := range d.dialects {
		if d.languages[x.language] == "en" && x.refset != usEnglish && x.refset != gbEnglish && isNational(x.refset) {
			list = append(list, i)
		}
	}
	international := []sctid{usEnglish, gbEnglish}
	if len(list) > 0 { // Australia, Ireland, New Zealand and the United Kingdom write British English
		slices.Reverse(international)
	}
	for _, refset := range international {
		if i := slices.IndexFunc(d.dialects, func(x dialect) bool { return x.refset == refset }); i >= 0 {
			list = append(list, i)
		}
	}
	return list
}

func init() {
	for refset, tag := range dialectTags {
		codesystem.RegisterLanguageAlias(tag[:2]+privateTag(refset), tag)
	}
}
