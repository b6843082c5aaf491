package loinc

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// loader reads the files of a release.
type loader struct {
	release  *definitions.Release
	files    map[string]string // paths by file name in lower case
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
	// names are the names of the file. Releases contain one of them.
	names []string
	read  func(l *loader, file string) error
}

// sources are the files to read, in this order. All except the first may be missing.
var sources = []source{
	{[]string{"Loinc.csv"}, (*loader).readTerms},
	{[]string{"Part.csv"}, (*loader).readParts},
	{[]string{"LoincPartLink_Primary.csv", "LoincPartLink.csv"}, (*loader).readPartLinks},
	{[]string{"LoincPartLink_Supplementary.csv"}, (*loader).readPartLinks},
	{[]string{"AnswerList.csv"}, (*loader).readAnswers},
	{[]string{"LoincAnswerListLink.csv"}, (*loader).readAnswerLinks},
	{[]string{"ParentGroup.csv"}, (*loader).readParentGroups},
	{[]string{"Group.csv"}, (*loader).readGroups},
	{[]string{"GroupLoincTerms.csv"}, (*loader).readGroupTerms},
	{[]string{"PanelsAndForms.csv"}, (*loader).readPanels},
	{[]string{"ComponentHierarchyBySystem.csv", "MultiAxialHierarchy.csv"}, (*loader).readHierarchy},
	{[]string{"ConsumerName.csv"}, (*loader).readConsumerNames},
}

// load reads a release.
func load(ctx context.Context, r *definitions.Release) (*definitions.ReleaseContent, error) {
	l := &loader{release: r, concepts: make(map[codeKey]uint32), properties: make(map[string]uint16), classes: make(map[codesystem.TextRef]uint32)}
	l.table.Reset()
	defer func() { l.table.Memory.Release() }()
	for _, p := range linkProperties {
		l.declare(p.name, "")
	}
	found, missing, err := l.plan()
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		r.Logger.WarnContext(ctx, "LOINC release incomplete", slog.String("release", r.Name), slog.String("missing", strings.Join(missing, " ")))
	}
	for i, s := range sources {
		if found[i] != "" {
			if err := s.read(l, found[i]); err != nil {
				return nil, err
			}
		}
	}
	if err := l.readVariants(); err != nil {
		return nil, err
	}
	s, err := l.build()
	if err != nil {
		return nil, err
	}
	return content(s), nil
}

// plan finds the files to read. It returns the file of each source, which is empty if there is none, and the missing files.
func (l *loader) plan() (found, missing []string, err error) {
	l.files = make(map[string]string, len(l.release.Files))
	for _, file := range l.release.Files {
		name := strings.ToLower(path.Base(file))
		if l.files[name] != "" && isMarker(file) {
			return nil, nil, fmt.Errorf("%s and %s: a folder must contain a single release", l.files[name], file)
		}
		l.files[name] = cmp.Or(l.files[name], file)
	}
	planned := l.variants()
	for _, s := range sources {
		file := ""
		for _, name := range s.names {
			file = cmp.Or(file, l.files[strings.ToLower(name)])
		}
		if found = append(found, file); file == "" {
			missing = append(missing, s.names[0])
			continue
		}
		planned = append(planned, file)
	}
	if len(l.variants()) == 0 {
		missing = append(missing, "*LinguisticVariant.csv")
	}
	if err := l.release.Plan(planned); err != nil {
		return nil, nil, err
	}
	return found, missing, l.reserve(planned)
}

// reserve reserves memory for all texts. They are shorter than the files.
func (l *loader) reserve(files []string) error {
	total := int64(0)
	for _, file := range files {
		size, err := l.release.Size(file)
		if err != nil {
			return err
		}
		total += size
	}
	l.table.Reserve(total)
	return nil
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
	case len(shared) == maxShared && property >= uint16(len(linkProperties)):
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

// codeKey is a code as a number: the letters, the number and the check digit.
type codeKey uint64

// parseCode parses a code: digits, a hyphen and a check digit, with two letters before them unless it is a term.
func parseCode(code []byte) (key codeKey, ok bool) {
	digits := code
	for len(digits) > 0 && 'A' <= digits[0] && digits[0] <= 'Z' {
		key, digits = key<<8|codeKey(digits[0]), digits[1:]
	}
	n := len(digits) - 2
	if n < 1 || n > maxDigits || digits[n] != '-' || digits[0] == '0' || len(code) > len(digits)+2 {
		return 0, false
	}
	number := codeKey(0)
	for i, digit := range digits {
		switch {
		case i == n:
		case digit < '0' || digit > '9':
			return 0, false
		default:
			number = number*10 + codeKey(digit-'0')
		}
	}
	return key<<48 | number, true
}

// maxDigits is the maximum number of digits of a code besides the check digit, so that it is less than 1<<48 with it. Codes have
// at most 7.
const maxDigits = 13

// code returns the key of the code in a column.
func (f *csvFile) code(column int) (codeKey, error) {
	code := f.fields[column]
	key, ok := parseCode(code)
	if !ok {
		return 0, f.errorf("%s is not a LOINC code: %q", f.columns[column], code[:min(len(code), 40)])
	}
	return key, nil
}

// find returns the concept with the code in a column. ok is false if the release does not contain it.
func (l *loader) find(f *csvFile, column int) (concept uint32, ok bool, err error) {
	key, err := f.code(column)
	if err != nil {
		return 0, false, err
	}
	if key != l.last.key { // files of links repeat codes
		concept, ok = l.concepts[key]
		l.last.key, l.last.concept, l.last.ok = key, concept, ok
	}
	return l.last.concept, l.last.ok, nil
}

// addConcept adds the concept with the code in a column. The same code must not occur twice.
func (l *loader) addConcept(f *csvFile, column int, display, definition []byte, flags codesystem.Flags) (uint32, error) {
	key, err := f.code(column)
	if err != nil {
		return 0, err
	}
	if _, ok := l.concepts[key]; ok {
		return 0, f.errorf("%s %s occurs twice", f.columns[column], f.fields[column])
	}
	return l.add(key, f.fields[column], display, definition, flags), nil
}

func (l *loader) add(key codeKey, code, display, definition []byte, flags codesystem.Flags) uint32 {
	var refs [2]codesystem.TextRef
	for i, text := range [][]byte{display, definition} {
		if len(text) > 0 {
			refs[i] = l.table.AddText(text)
		}
	}
	concept := l.table.AddConcept(code, refs[0], refs[1], flags)
	l.concepts[key] = concept
	l.last.key = 0
	return concept
}

// language is the language of displays.
const language = "en-US"

// addName adds a designation in a language. name is the name of the column that contains it.
func (l *loader) addName(concept uint32, language, name string, text []byte) {
	if len(text) > 0 {
		l.table.AddDesignation(concept, language, codesystem.Use{System: URL, Code: name, Display: name}, l.table.AddText(text))
	}
}

// Statuses of concepts. Terms that are deprecated are inactive (Using LOINC with HL7 Standards). HL7's test cases require the same
// for those that are discouraged.
var inactiveStatuses = map[string]bool{"DEPRECATED": true, "DISCOURAGED": true}

func statusFlags(status []byte) codesystem.Flags {
	if inactiveStatuses[string(status)] {
		return codesystem.FlagInactive
	}
	return 0
}

// Columns of Loinc.csv that contain names of parts: the six axes and the class. They are the first [linkProperties].
const (
	axisClass = 6
	axisCount = 7
)

// Columns of Loinc.csv that are not properties.
var otherColumns = map[string]bool{
	"LOINC_NUM": true, "LONG_COMMON_NAME": true, "SHORTNAME": true, "CONSUMER_NAME": true, "DisplayName": true, "DefinitionDescription": true,
}

// termReader reads Loinc.csv.
type termReader struct {
	*loader
	*csvFile
	shortName, displayName, definition, rank, firstReleased, lastChanged int
	axisAt                                                               [axisCount]int
	textAt                                                               []int // columns of the properties from firstText
	firstText                                                            uint16
}

func (l *loader) readTerms(file string) error {
	f, at, err := openCSV(l.release, file, "LOINC_NUM", "LONG_COMMON_NAME", "STATUS")
	if err != nil {
		return err
	}
	r := &termReader{
		loader: l, csvFile: f, shortName: f.column("SHORTNAME"), displayName: f.column("DisplayName"), definition: f.column("DefinitionDescription"),
		rank: f.column("COMMON_TEST_RANK"), firstReleased: f.column("VersionFirstReleased"), lastChanged: f.column("VersionLastChanged"),
		firstText: uint16(len(l.texts)),
	}
	for axis := range r.axisAt {
		r.axisAt[axis] = f.column(linkProperties[axis].name)
	}
	for i, column := range f.columns {
		if _, isAxis := l.properties[column]; !isAxis && !otherColumns[column] {
			uri := ""
			if column == "STATUS" {
				uri = codesystem.PropertyBase + "status"
			}
			l.declare(column, uri)
			r.textAt = append(r.textAt, i)
		}
	}
	err = f.each(func() error { return r.readTerm(at) })
	l.terms = uint32(len(l.concepts))
	l.links = make([]linkRow, 0, len(l.concepts)*typicalLinks)
	return err
}

func (r *termReader) readTerm(at []int) error {
	term, err := r.addConcept(r.csvFile, at[0], r.fields[at[1]], r.optional(r.definition), statusFlags(r.fields[at[2]]))
	if err != nil {
		return err
	}
	r.addName(term, language, "SHORTNAME", r.optional(r.shortName))
	r.addName(term, language, "DisplayName", r.optional(r.displayName))
	for axis, column := range r.axisAt {
		r.axes[axis] = append(r.axes[axis], r.addText(uint16(axis), r.optional(column)))
	}
	for i, column := range r.textAt {
		property := r.firstText + uint16(i)
		r.addString(term, property, r.addText(property, r.fields[column]))
	}
	rank, _ := strconv.ParseUint(string(r.optional(r.rank)), 10, 32) // 0 if the term is not among the most frequent
	r.ranks = append(r.ranks, float64(rank))
	r.addVersion(r.optional(r.firstReleased))
	r.addVersion(r.optional(r.lastChanged))
	return nil
}

// typicalLinks is the usual number of links per term.
const typicalLinks = 16

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

func (l *loader) readParts(file string) error {
	f, at, err := openCSV(l.release, file, "PartNumber", "PartTypeName", "PartName")
	if err != nil {
		return err
	}
	display, status := f.column("PartDisplayName"), f.column("Status")
	statusProperty := l.properties["STATUS"]
	return f.each(func() error {
		part, err := l.addConcept(f, at[0], f.fields[at[2]], nil, statusFlags(f.optional(status)))
		if err != nil {
			return err
		}
		if status >= 0 {
			l.addString(part, statusProperty, l.addText(statusProperty, f.fields[status]))
		}
		l.addName(part, language, "DisplayName", f.optional(display))
		if name := l.texts[axisClass][string(f.fields[at[2]])]; name != 0 && string(f.fields[at[1]]) == "CLASS" {
			l.classes[name] = part
		}
		return nil
	})
}

func (l *loader) readPartLinks(file string) error {
	f, at, err := openCSV(l.release, file, "LoincNumber", "PartNumber", "Property")
	if err != nil {
		return err
	}
	return f.each(func() error {
		term, part, ok, err := l.pair(f, at[0], at[1])
		if err != nil || !ok {
			return err
		}
		name := f.fields[at[2]]
		if name = name[strings.LastIndexByte(string(name), '/')+1:]; len(name) == 0 {
			return f.errorf("%s is empty", f.columns[at[2]])
		}
		property, ok := l.properties[string(name)]
		if !ok {
			if len(l.properties) == maxProperties {
				return f.errorf("more than %d properties", maxProperties)
			}
			property = l.declare(string(name), "")
		}
		l.links = append(l.links, linkRow{source: term, target: part, property: property})
		return nil
	})
}

// maxProperties is the maximum number of properties. Releases have about 80.
const maxProperties = 1000

// pair returns the concepts with the codes in two columns. ok is false unless the release contains both.
func (l *loader) pair(f *csvFile, first, second int) (a, b uint32, ok bool, err error) {
	a, hasFirst, err := l.find(f, first)
	if err != nil {
		return 0, 0, false, err
	}
	b, hasSecond, err := l.find(f, second)
	return a, b, hasFirst && hasSecond, err
}
