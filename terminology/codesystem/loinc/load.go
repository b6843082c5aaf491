package loinc

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// loader reads the files of a release.
type loader struct {
	release  *definitions.Release
	table    table.Builder
	concepts map[codeKey]uint32 // numbers by code
	last     struct {           // last code that was found
		key     codeKey
		concept uint32
		ok      bool
	}
	terms      uint32                          // number of terms, which come first
	properties map[string]uint16               // numbers by code
	texts      []map[string]codesystem.TextRef // by property: values that are stored once; nil if there are too many
	hasTexts   []bool                          // by property: whether values are texts
	links      []linkRow
	edges      []edge
	axes       [axisCount][]codesystem.TextRef // by term: name of the part in Loinc.csv
	classes    map[codesystem.TextRef]uint32   // parts by the name of the class
	ranks      []float64                       // by term: COMMON_TEST_RANK
	newest     string                          // latest version in which a term was changed
}

// edge is a parent of a concept, and where it is defined.
type edge struct {
	child, parent uint32
	file          string
	line          int
}

// source is a kind of file.
type source struct {
	// names are patterns of file names (path.Match), separated by spaces. Case is ignored. The first one that matches is used.
	names string

	// columns are the columns to read, separated by spaces. A question mark follows an optional column.
	columns string

	// begin returns a function that reads the current record of a file.
	begin func(l *loader, f *csvFile) func() error
}

// sources are the files to read, in this order. All except the first may be missing.
var sources = []source{
	{
		"Loinc.csv", "LOINC_NUM LONG_COMMON_NAME STATUS SHORTNAME? DisplayName? DefinitionDescription? COMMON_TEST_RANK? VersionFirstReleased? VersionLastChanged? " +
			"COMPONENT? PROPERTY? TIME_ASPCT? SYSTEM? SCALE_TYP? METHOD_TYP? CLASS?", (*loader).beginTerms,
	},
	{"Part.csv", "PartNumber PartName PartTypeName PartDisplayName? Status?", (*loader).beginParts},
	{"LoincPartLink_Primary.csv LoincPartLink.csv", "LoincNumber PartNumber Property", (*loader).beginPartLinks},
	{"LoincPartLink_Supplementary.csv", "LoincNumber PartNumber Property", (*loader).beginPartLinks},
	{"AnswerList.csv", "AnswerListId AnswerListName AnswerStringId DisplayText Description?", (*loader).beginAnswers},
	{"LoincAnswerListLink.csv", "LoincNumber AnswerListId", beginLinks(propertyAnswerList)},
	{"ParentGroup.csv", "ParentGroupId ParentGroup ParentId?", (*loader).beginHierarchy},
	{"Group.csv", "GroupId Group ParentGroupId", (*loader).beginHierarchy},
	{"GroupLoincTerms.csv", "LoincNumber GroupId", beginLinks(propertyGroup)},
	{"PanelsAndForms.csv", "ParentLoinc Loinc", beginLinks(propertyPanelMember)},
	{"ComponentHierarchyBySystem.csv MultiAxialHierarchy.csv", "CODE CODE_TEXT IMMEDIATE_PARENT", (*loader).beginHierarchy},
	{"ConsumerName.csv", "LoincNumber ConsumerName", (*loader).beginConsumerNames},
	{
		"*LinguisticVariant.csv", "LOINC_NUM LONG_COMMON_NAME? LinguisticVariantDisplayName? SHORTNAME? " +
			"COMPONENT? PROPERTY? TIME_ASPCT? SYSTEM? SCALE_TYP? METHOD_TYP?", (*loader).beginVariant,
	},
}

// load reads a release.
func load(ctx context.Context, r *definitions.Release) (*definitions.ReleaseContent, error) {
	l := &loader{release: r, concepts: make(map[codeKey]uint32), properties: make(map[string]uint16), classes: make(map[codesystem.TextRef]uint32)}
	l.table.Reset()
	l.table.SearchesOwnLanguage = true
	defer func() { l.table.Memory.Release() }()
	for _, p := range linkProperties {
		l.declare(p.name, "")
	}
	found, err := l.plan(ctx)
	if err != nil {
		return nil, err
	}
	for i, s := range sources {
		for _, file := range found[i] {
			if err := l.read(s, file); err != nil {
				return nil, err
			}
		}
	}
	s, err := l.build()
	if err != nil {
		return nil, err
	}
	return content(s), nil
}

// plan returns the files of each source.
func (l *loader) plan(ctx context.Context) (found [][]string, err error) {
	var all, missing []string
	for _, s := range sources {
		files := matchFiles(l.release.Files, s.names)
		if found, all = append(found, files), append(all, files...); len(files) == 0 {
			missing = append(missing, strings.Fields(s.names)[0])
		}
	}
	if len(found[0]) > 1 {
		return nil, fmt.Errorf("%s: a folder must contain a single release", strings.Join(found[0], " and "))
	}
	if len(missing) > 0 {
		l.release.Logger.WarnContext(ctx, "LOINC release incomplete", slog.String("release", l.release.Name), slog.String("missing", strings.Join(missing, " ")))
	}
	if err := l.release.Plan(all); err != nil {
		return nil, err
	}
	total := int64(0)
	for _, file := range all {
		size, err := l.release.Size(file)
		if err != nil {
			return nil, err
		}
		total += size
	}
	l.table.Reserve(total) // texts are shorter than the files
	return found, nil
}

// matchFiles returns the files with names that match the first pattern that any name matches. Language variants of the country with
// the name of the language come first: a request for de prefers de-DE to de-AT.
func matchFiles(all []string, patterns string) (files []string) {
	for pattern := range strings.FieldsSeq(strings.ToLower(patterns)) {
		for _, file := range all {
			if ok, _ := path.Match(pattern, strings.ToLower(path.Base(file))); ok {
				files = append(files, file)
			}
		}
		if len(files) > 0 {
			break
		}
	}
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(variantRank(a), variantRank(b)) })
	return files
}

// read reads a file.
func (l *loader) read(s source, file string) error {
	f, err := openCSV(l.release, file, strings.Fields(s.columns))
	if err != nil {
		return err
	}
	return f.each(s.begin(l, f))
}

// declare declares a property and returns its number.
func (l *loader) declare(code, uri string) uint16 {
	l.texts, l.hasTexts = append(l.texts, make(map[string]codesystem.TextRef)), append(l.hasTexts, false)
	l.properties[code] = l.table.DeclareProperty(codesystem.Property{Code: code, URI: uri})
	return l.properties[code]
}

// maxShared is the maximum number of values of a property that are stored only once.
const maxShared = 4096

// addText adds a value of a property to the texts. Values of properties with few of them are stored once.
func (l *loader) addText(property uint16, text []byte) codesystem.TextRef {
	shared := l.texts[property]
	if ref, ok := shared[string(text)]; ok || len(text) == 0 {
		return ref
	}
	ref := l.table.AddText(text)
	switch {
	case len(shared) == maxShared && property >= axisCount:
		l.texts[property] = nil
	case shared != nil:
		shared[string(text)] = ref
	}
	return ref
}

// addString adds a text that addText returned as a value.
func (l *loader) addString(concept uint32, property uint16, text codesystem.TextRef) {
	if text != 0 {
		l.hasTexts[property] = true
		l.table.AddString(concept, property, text)
	}
}

// find returns the concept with the code in a column. ok is false if the release does not contain it.
func (l *loader) find(f *csvFile, column int) (concept uint32, ok bool, err error) {
	key, err := f.code(column)
	if err != nil {
		return 0, false, err
	}
	if key != l.last.key { // files of links repeat codes
		l.last.key = key
		l.last.concept, l.last.ok = l.concepts[key]
	}
	return l.last.concept, l.last.ok, nil
}

// findOrAdd returns the concept with the code in a column. It adds the concept if the release does not contain it yet.
func (l *loader) findOrAdd(f *csvFile, column int, display, definition []byte) (uint32, error) {
	concept, ok, err := l.find(f, column)
	if err != nil || ok {
		return concept, err
	}
	return l.add(f, column, display, definition, nil)
}

// add adds the concept with the code in a column. The same code must not occur twice.
func (l *loader) add(f *csvFile, column int, display, definition, status []byte) (uint32, error) {
	key, err := f.code(column)
	if err != nil {
		return 0, err
	}
	if _, ok := l.concepts[key]; ok {
		return 0, f.errorf("%s %s occurs twice", f.required[column], f.value(column))
	}
	var refs [2]codesystem.TextRef
	for i, text := range [][]byte{display, definition} {
		if len(text) > 0 {
			refs[i] = l.table.AddText(text)
		}
	}
	l.concepts[key] = l.table.AddConcept(f.value(column), refs[0], refs[1], statusFlags[string(status)])
	l.last.key = 0
	return l.concepts[key], nil
}

// statusFlags are the flags of concepts by status. Deprecated terms are inactive (Using LOINC with HL7 Standards). HL7's test
// cases require the same of discouraged terms.
var statusFlags = map[string]codesystem.Flags{"DEPRECATED": codesystem.FlagInactive, "DISCOURAGED": codesystem.FlagInactive}

// language is the language of displays.
const language = "en-US"

// addName adds a designation in a language. name is the name of the column that contains it.
func (l *loader) addName(concept uint32, language, name string, text []byte) {
	if len(text) > 0 {
		l.table.AddDesignation(concept, language, codesystem.Use{System: URL, Code: name, Display: name}, l.table.AddText(text))
	}
}

// link adds a link between concepts.
func (l *loader) link(source, target uint32, property uint16) {
	l.links = append(l.links, linkRow{source: source, target: target, property: property})
}

// addVersion sets the newest version of a term.
func (l *loader) addVersion(version []byte) {
	if string(version) != l.newest && versionPattern.Match(version) && definitions.CompareVersions(string(version), l.newest) > 0 {
		l.newest = string(version)
	}
}

var (
	versionPattern = regexp.MustCompile(`^\d+\.\d+$`)
	namePattern    = regexp.MustCompile(`(?i)loinc[-_ ]*v?(\d+\.\d+)`)
)

// version returns the version of the release: that in the name of the archive, folder or a file, such as Loinc_2.82.zip.
// Otherwise, it is the latest version in which a term was changed.
func (l *loader) version() string {
	for _, name := range append([]string{l.release.Name}, l.release.Files...) {
		if found := namePattern.FindAllStringSubmatch(name, -1); found != nil {
			return found[len(found)-1][1]
		}
	}
	return l.newest
}
