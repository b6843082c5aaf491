package loinc_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/loinc"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/loinc/loinctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

// synthetic is the release of most tests.
var synthetic = loinctest.Release{Terms: 400, Parts: 300, Languages: []string{"deAT", "deDE", "frFR", "itIT"}}

// folderOf writes a release to a folder.
func folderOf(t testing.TB, r loinctest.Release) string {
	t.Helper()
	folder := t.TempDir()
	if err := r.WriteFolder(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// libraryOf loads files.
func libraryOf(t testing.TB, files ...string) *terminology.Library {
	t.Helper()
	l, err := terminology.Load(t.Context(), definitions.Options{Definitions: files})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// systemOf returns LOINC in a library.
func systemOf(t testing.TB, l *terminology.Library) *loinc.System {
	t.Helper()
	t.Cleanup(func() { l.Definitions().Use(func() {}) }) // keeps the memory of the system
	systems := l.Definitions().Systems
	return systems.CodeSystems[systems.CodeSystem(loinc.URL, "")].Concepts.System.(*loinc.System)
}

// concept returns the concept with a code.
func concept(t testing.TB, s *loinc.System, code string) codesystem.Concept {
	t.Helper()
	c, ok := s.Locate([]byte(code))
	if !ok {
		t.Fatalf("no concept %s", code)
	}
	return c
}

// display returns the display of a concept in a language.
func display(t testing.TB, s *loinc.System, code, language string) string {
	t.Helper()
	languages := codesystem.ParseLanguages(language)
	return string(languages.DisplayOf(s.AppendTexts(nil, concept(t, s, code))))
}

// wantResponses sends GET requests and checks that each response contains the given texts.
func wantResponses(t *testing.T, l *terminology.Library, wants [][]string) {
	t.Helper()
	for _, want := range wants {
		w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "GET", want[0], "")
		for _, text := range want[1:] {
			if !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: no %s in %.1500s", want[0], text, w.Body)
			}
		}
	}
}

func expand(address string) string {
	return "/ValueSet/$expand?count=3&url=" + url.QueryEscape(address)
}

// TestZipEqualsFolder checks that the two forms of a release yield the same concepts.
func TestZipEqualsFolder(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "x.zip")
	if err := synthetic.WriteZip(archive); err != nil {
		t.Fatal(err)
	}
	zipped, folder := systemOf(t, libraryOf(t, archive)), systemOf(t, libraryOf(t, folderOf(t, synthetic)))
	if a, b := zipped.Table.AppendConcepts(nil), folder.Table.AppendConcepts(nil); string(a) != string(b) || zipped.Len() != 810 {
		t.Errorf("different concepts, %d and %d", zipped.Len(), folder.Len())
	}
}

// TestMovedColumns checks that columns and files are found by name.
func TestMovedColumns(t *testing.T) {
	folder := folderOf(t, synthetic)
	file := filepath.Join(folder, "LoincTable", "Loinc.csv")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var moved strings.Builder
	moved.WriteString("\ufeff")
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\r\n"), "\r\n") {
		first, rest, _ := strings.Cut(line, ",")
		added := `"line one` + "\n" + `line ""two"""`
		if i == 0 {
			added = "NewColumn"
		}
		moved.WriteString(rest + "," + added + "," + first + "\n")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "AccessoryFiles", "LOINC.CSV"), []byte(moved.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, want := systemOf(t, libraryOf(t, folder)), systemOf(t, libraryOf(t, folderOf(t, synthetic)))
	code := loinctest.Term(399)
	if got := display(t, s, code, ""); got != display(t, want, code, "") || s.Len() != want.Len() {
		t.Errorf("display %q of %d concepts", got, s.Len())
	}
	if got := valuesOf(t, s, code, "NewColumn"); got != "line one\nline \"two\"" {
		t.Errorf("a new column is not a property: %q", got)
	}
}

// valuesOf returns the values of a property of a concept.
func valuesOf(t testing.TB, s *loinc.System, code, property string) string {
	t.Helper()
	var values []string
	for _, v := range s.AppendValues(nil, concept(t, s, code)) {
		if v.Property.Code == property {
			values = append(values, string(v.Text))
		}
	}
	return strings.Join(values, " ")
}

// TestMissingFiles checks that only the table of terms is necessary, and that missing files are reported once.
func TestMissingFiles(t *testing.T) {
	folder := folderOf(t, synthetic)
	if err := os.RemoveAll(filepath.Join(folder, "AccessoryFiles")); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l, err := terminology.Load(t.Context(), definitions.Options{Definitions: []string{folder}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s := systemOf(t, l)
	if got := valuesOf(t, s, loinctest.Term(3), "SYSTEM"); s.Len() != 400 || got != "CSF" {
		t.Errorf("%d concepts, system %q", s.Len(), got)
	}
	if strings.Count(log.String(), "LOINC release incomplete") != 1 || !strings.Contains(log.String(), "Part.csv") || !strings.Contains(log.String(), "*LinguisticVariant.csv") {
		t.Errorf("log: %s", &log)
	}
	if got := filtered(t, l, "SYSTEM", "=", "csf"); !strings.Contains(got, `"total":45`) {
		t.Errorf("filter on the name of a system: %.500s", got)
	}
}

func TestDisplays(t *testing.T) {
	s := systemOf(t, libraryOf(t, folderOf(t, synthetic)))
	term := loinctest.Term(6)
	long := display(t, s, term, "")
	if !strings.HasPrefix(long, "Measured ") {
		t.Errorf("display %q", long)
	}
	for language, want := range map[string]string{"en": "Measured ", "en-US": "Measured ", "de": "deDE ", "de-AT": "deAT ", "fr": "frFR ", "nl": "Measured "} {
		if got := display(t, s, term, language); !strings.HasPrefix(got, want) {
			t.Errorf("language %s: %q", language, got)
		}
	}
	if got, want := display(t, s, loinctest.Term(0), "fr"), ":MCnc:Pt:Ser/Plas:Qn"; !strings.HasPrefix(got, "frFR ") || !strings.HasSuffix(got, want) {
		t.Errorf("fully specified name %q, want %q", got, want)
	}
	if got := display(t, s, loinctest.Term(7), "it"); !strings.HasPrefix(got, "Measured ") {
		t.Errorf("a term without Italian names: %q", got)
	}
	var uses []string
	for _, text := range s.AppendTexts(nil, concept(t, s, term)) {
		if text.Language == "en-US" {
			uses = append(uses, text.Use.Code)
		}
	}
	if want := "preferredForLanguage SHORTNAME DisplayName ConsumerName LONG_COMMON_NAME"; strings.Join(uses, " ") != want {
		t.Errorf("designations %v, want %s", uses, want)
	}
	for code, want := range map[string]int{loinctest.Class(3): 2, loinctest.Part(0): 1} { // the display name of a part is often the same
		if got := len(s.AppendTexts(nil, concept(t, s, code))); got != want {
			t.Errorf("%s: %d names, want %d", code, got, want)
		}
	}
	for code, want := range map[string]string{loinctest.Class(3): "CLASS.DE3", loinctest.Part(0): "Pt", loinctest.List(2): "List 2", loinctest.Group(0): "All groups"} {
		if got := display(t, s, code, ""); got != want {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	s := systemOf(t, libraryOf(t, folderOf(t, synthetic)))
	for _, test := range []struct{ code, property, want string }{
		{loinctest.Term(0), "STATUS", "ACTIVE"},
		{loinctest.Term(24), "STATUS", "DEPRECATED"},
		{loinctest.Term(0), "CLASS", loinctest.Class(0)},
		{loinctest.Term(5), "CLASSTYPE", "2"},
		{loinctest.Term(0), "TIME_ASPCT", loinctest.Part(0)},
		{loinctest.Term(0), "PROPERTY", loinctest.Part(1)},
		{loinctest.Term(3), "document-kind", loinctest.Part(0)},
		{loinctest.Term(0), "METHOD_TYP", ""},
		{loinctest.Term(20), "answer-list", loinctest.List(1)},
		{loinctest.List(1), "answers-for", loinctest.Term(20)},
		{loinctest.List(0), "Answer", strings.Join([]string{loinctest.Answer(0), loinctest.Answer(1), loinctest.Answer(2), loinctest.Answer(3), loinctest.Answer(4)}, " ")},
		{loinctest.Answer(3), "AnswerList", loinctest.List(0) + " " + loinctest.List(1) + " " + loinctest.List(14)},
		{loinctest.Term(100), "panel-member", strings.Join([]string{loinctest.Term(101), loinctest.Term(102), loinctest.Term(103), loinctest.Term(104), loinctest.Term(105)}, " ")},
		{loinctest.Term(101), "panel", loinctest.Term(100)},
		{loinctest.Term(5), "group", loinctest.Group(2)},
		{loinctest.Group(1), "group-member", strings.Join([]string{loinctest.Term(0), loinctest.Term(1), loinctest.Term(2), loinctest.Term(3)}, " ")},
		{loinctest.Part(4), "STATUS", "ACTIVE"},
		{loinctest.Term(0), "VersionLastChanged", "2.99"},
	} {
		if got := valuesOf(t, s, test.code, test.property); got != test.want {
			t.Errorf("%s of %s: got %q, want %q", test.property, test.code, got, test.want)
		}
	}
	for i, inactive := range map[int]bool{0: false, 24: true, 48: true} {
		if _, _, flags := s.Concept(concept(t, s, loinctest.Term(i))); flags&codesystem.FlagInactive != 0 != inactive {
			t.Errorf("term %d: flags %b", i, flags)
		}
	}
	if got := s.Status(concept(t, s, loinctest.Term(48))); got != "DISCOURAGED" {
		t.Errorf("status %q", got)
	}
}

// filtered returns the response to an expansion of the concepts that match a filter.
func filtered(t *testing.T, l *terminology.Library, property, op, value string) string {
	t.Helper()
	body := `{"resourceType":"Parameters","parameter":[{"name":"count","valueInteger":5},{"name":"valueSet","resource":{"resourceType":"ValueSet","compose":{"include":[` +
		`{"system":"` + loinc.URL + `","filter":[{"property":"` + property + `","op":"` + op + `","value":"` + value + `"}]}]}}}]}`
	w, _ := terminologytest.Call(t, &api.Handler{Library: l}, "POST", "/ValueSet/$expand", body)
	return w.Body.String()
}

func TestFilters(t *testing.T) {
	l := libraryOf(t, folderOf(t, synthetic))
	for name, test := range map[string]struct {
		property, op, value string
		want                string
	}{
		"part":                    {"TIME_ASPCT", "=", loinctest.Part(0), `"total":400`},
		"part in lower case":      {"TIME_ASPCT", "=", strings.ToLower(loinctest.Part(0)), `"total":400`},
		"name of a part":          {"SYSTEM", "=", "Urine", `"total":45`},
		"name in upper case":      {"SCALE_TYP", "=", "DOC", `"total":79`},
		"parts":                   {"SYSTEM", "in", loinctest.Part(11) + ", Bld", `"total":90`},
		"other parts":             {"SYSTEM", "not-in", loinctest.Part(11) + ",Bld", `"total":720`},
		"unknown part":            {"SYSTEM", "=", "LP1-2", `"total":0`},
		"part of no such kind":    {"METHOD_TYP", "=", loinctest.Part(0), `"total":0`},
		"regex on parts":          {"CLASS", "regex", "CLASS\\\\.(DE3|GEN.*)", `"total":20`},
		"regex":                   {"ORDER_OBS", "regex", "O.*", `"total":266`},
		"document ontology":       {"document-kind", "exists", "true", `"total":10`},
		"status":                  {"STATUS", "=", "DISCOURAGED", `"total":8`},
		"status in lower case":    {"STATUS", "=", "deprecated", `"total":16`},
		"status in expansions":    {"STATUS", "=", "DISCOURAGED", `"inactive":true`},
		"class type":              {"CLASSTYPE", "=", "1", `"total":100`},
		"name of a class type":    {"CLASSTYPE", "=", "Clinical class", `"total":100`},
		"order":                   {"ORDER_OBS", "in", "both,Order", `"total":267`},
		"third party":             {"copyright", "=", "3rdParty", `"total":40`},
		"LOINC":                   {"copyright", "=", "LOINC", loinctest.Term(0)},
		"other copyright":         {"copyright", "=", "x", "not LOINC or 3rdParty"},
		"list":                    {"LIST", "=", loinctest.List(1), `"total":5`},
		"unknown list":            {"LIST", "=", "LL1-2", `"total":0`},
		"answers of a list":       {"answers-for", "=", loinctest.List(1), `"total":5`},
		"answers for a term":      {"answers-for", "=", loinctest.Term(20), loinctest.Answer(3)},
		"terms with a list":       {"answer-list", "=", loinctest.List(1), `"total":1`},
		"lists with an answer":    {"Answer", "=", loinctest.Answer(3), `"total":3`},
		"lists of an answer":      {"AnswerList", "=", loinctest.List(1), `"total":5`},
		"members of a panel":      {"panel", "=", loinctest.Term(100), `"total":5`},
		"panels with a member":    {"panel-member", "=", loinctest.Term(101), `"code":"` + loinctest.Term(100)},
		"group":                   {"group", "=", loinctest.Group(1), `"total":4`},
		"parent":                  {"parent", "=", loinctest.Class(0), `"total":39`},
		"parents":                 {"parent", "in", loinctest.Class(0) + "," + loinctest.Group(0), `"total":47`},
		"unknown parent":          {"parent", "=", "80764-4", `"total":0`},
		"child":                   {"child", "=", loinctest.Class(2), `"code":"` + loinctest.Class(0)},
		"ancestor":                {"ancestor", "=", loinctest.Class(0), `"total":589`},
		"descendant":              {"descendant", "=", loinctest.Term(0), `"code":"` + loinctest.Class(0)},
		"is-a":                    {"concept", "is-a", loinctest.Class(0), `"total":590`},
		"text":                    {"VersionFirstReleased", "=", "1.0", `"total":400`},
		"unknown property":        {"x", "=", "1", "no property"},
		"operator without values": {"LIST", "exists", "true", "no property"},
	} {
		if got := filtered(t, l, test.property, test.op, test.value); !strings.Contains(got, test.want) {
			t.Errorf("%s: no %s in %.800s", name, test.want, got)
		}
	}
}

// TestImplicitValueSets checks the URLs of value sets in two versions.
func TestImplicitValueSets(t *testing.T) {
	terminologytest.RequireFeatures(t, "/CodeSystem/$subsumes", "/CodeSystem/$lookup", "/CodeSystem/$validate-code", "/ValueSet/$validate-code")
	folder := t.TempDir()
	for name, terms := range map[string]int{"Loinc_2.80.zip": 400, "Loinc_2.9.zip": 200} { // the last one is older
		if err := (loinctest.Release{Terms: terms, Parts: 300}).WriteZip(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	wantResponses(t, libraryOf(t, folder), [][]string{
		{expand("http://loinc.org/vs"), `"total":810`, `"version":"2.80"`, "LOINCAllCodes", "http://loinc.org|2.80"},
		{expand("http://loinc.org/vs|2.9"), `"version":"2.9"`, "http://loinc.org|2.9"},
		{expand("http://loinc.org/vs|2.7"), "could not be found"},
		{expand("http://loinc.org/vs/" + loinctest.List(1)), `"total":5`, `"version":"2.80"`, "LOINCAnswerListLL101_", loinctest.Answer(3)},
		{expand("http://loinc.org/vs/" + loinctest.Class(0)), `"total":589`},
		{expand("http://loinc.org/vs/" + loinctest.Group(1)), `"total":4`, loinctest.Term(2)},
		{expand("http://loinc.org/vs/" + loinctest.Term(1)), "could not be found"},
		{expand("http://loinc.org/vs/LL1-2"), "could not be found"},
		{"/ValueSet/$validate-code?url=http://loinc.org/vs/" + loinctest.List(1) + "&system=http://loinc.org&code=" + loinctest.Answer(0), "was not found in the value set 'http://loinc.org/vs/" + loinctest.List(1) + "|2.80'"},
		{"/CodeSystem/$lookup?property=*&system=http://loinc.org&code=" + loinctest.Term(48), `"valueString":"2.80"`, "LONG_COMMON_NAME", "ConsumerName", "DISCOURAGED", "Regenstrief"},
		{"/CodeSystem/$subsumes?system=http://loinc.org&codeA=" + loinctest.Class(0) + "&codeB=" + loinctest.Term(1), `"subsumes"`},
		{"/CodeSystem/$validate-code?url=http://loinc.org&code=" + loinctest.Term(48), "has a status of DISCOURAGED and its use should be reviewed"},
	})
}

// TestSearch checks which names are found, and that frequent terms come first.
func TestSearch(t *testing.T) {
	l := libraryOf(t, folderOf(t, synthetic))
	s := systemOf(t, l)
	texts := s.AppendTexts(nil, concept(t, s, loinctest.Term(22)))
	for use, language := range map[string]string{"LONG_COMMON_NAME": "en-US", "SHORTNAME": "en-US", "ConsumerName": "en-US", "": "de-DE"} {
		i := slices.IndexFunc(texts, func(x codesystem.Text) bool { return x.Language == language && (use == "" || x.Use.Code == use) })
		search := "/ValueSet/$expand?count=30&url=http://loinc.org/vs&displayLanguage=" + language + "&filter=" + url.QueryEscape(string(texts[i].Value))
		wantResponses(t, l, [][]string{{search, `"code":"` + loinctest.Term(22) + `"`}})
	}
	wantResponses(t, l, [][]string{
		{"/ValueSet/$expand?count=2&url=http://loinc.org/vs&filter=measured", `"contains":[{"system":"http://loinc.org","code":"` + loinctest.Term(1) + `"`},
		{"/ValueSet/$expand?count=2&url=http://loinc.org/vs&filter=dede&displayLanguage=de", `"display":"deDE `},
		{"/ValueSet/$expand?count=2&url=http://loinc.org/vs&filter=frFR", `"total":0`}, // names in other languages need displayLanguage
	})
}

// TestWatch checks that a replaced archive is swapped in, and that a defective one changes nothing.
func TestWatch(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "Loinc.zip")
	replace := func(terms int, size int64) {
		next := archive + ".new"
		if err := (loinctest.Release{Terms: terms, Parts: 100}).WriteZip(next); err != nil {
			t.Fatal(err)
		}
		if size > 0 {
			if err := os.Truncate(next, size); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(next, archive); err != nil {
			t.Fatal(err)
		}
	}
	replace(100, 0)
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{archive}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := w.Current().Definitions().Counts().Concepts
	replace(200, 1000)
	if err := w.Refresh(t.Context()); err == nil || w.Current().Definitions().Counts().Concepts != before {
		t.Errorf("a defective archive: %v, %v", err, w.Current().Definitions().Counts())
	}
	replace(200, 0)
	if err := w.Refresh(t.Context()); err != nil || w.Current().Definitions().Counts().Concepts < before+100 {
		t.Errorf("a new archive: %v, %v", err, w.Current().Definitions().Counts())
	}
}

// TestErrors checks that a hostile, foreign or truncated file is an error that names the file and line.
func TestErrors(t *testing.T) {
	const terms, parts, hierarchy = "Loinc.csv", "Part.csv", "ComponentHierarchyBySystem.csv"
	for name, test := range map[string]struct {
		file   string
		change func(text string) string
		want   string
	}{
		"empty file":        {terms, func(string) string { return "" }, "Loinc.csv line 1: no header"},
		"missing column":    {terms, func(text string) string { return strings.Replace(text, "LONG_COMMON_NAME", "NAME", 1) }, "Loinc.csv line 1: no column LONG_COMMON_NAME"},
		"missing part name": {parts, func(text string) string { return strings.Replace(text, `"PartName"`, `"Name"`, 1) }, "Part.csv line 1: no column PartName"},
		"UTF-16":            {terms, func(text string) string { return "\xff\xfe" + strings.Join(strings.Split(text, ""), "\x00") }, "Loinc.csv line 1"},
		"a million columns": {terms, func(string) string { return "LOINC_NUM" + strings.Repeat(",", 1_000_000) + "\n" }, "line 1: no header: more than 128 columns"},
		"too few fields":    {terms, func(text string) string { return text + `"1-8","x"` + "\n" }, "Loinc.csv line 10: 2 columns, but the header has 21"},
		"huge record":       {terms, func(text string) string { return text + `"` + strings.Repeat("1", 1<<21) }, "Loinc.csv line 10: longer than"},
		"truncated record":  {terms, func(text string) string { return text[:len(text)-5] }, `Loinc.csv line 9: parse error on line 9, column 428: extraneous or missing " in quoted-field`},
		"text after quotes": {terms, func(text string) string { return strings.Replace(text, `"ACTIVE"`, `"ACTIVE"x`, 1) }, `Loinc.csv line 2: parse error on line 2, column 90: extraneous or missing " in quoted-field`},
		"NUL":               {terms, func(text string) string { return strings.Replace(text, "ACTIVE", "ACT\x00IVE", 1) }, "Loinc.csv line 2: contains a NUL"},
		"invalid UTF-8":     {parts, func(text string) string { return strings.Replace(text, "CLASS", "\xff", 1) }, "Part.csv line 2: not UTF-8"},
		"duplicate term":    {terms, func(text string) string { return text + strings.Split(text, "\n")[3] + "\n" }, "Loinc.csv line 10: LOINC_NUM " + loinctest.Term(2) + " occurs twice"},
		"no code":           {terms, func(text string) string { return strings.Replace(text, loinctest.Term(2), "Glucose", 1) }, `Loinc.csv line 4: LOINC_NUM is not a LOINC code: "Glucose"`},
		"no part":           {"LoincPartLink_Primary.csv", func(text string) string { return strings.Replace(text, loinctest.Part(1), "LP0", 1) }, "PartNumber is not a LOINC code"},
		"no property":       {"LoincPartLink_Primary.csv", func(text string) string { return strings.Replace(text, "http://loinc.org/property/COMPONENT", "", 1) }, "line 2: Property is empty"},
		"no parent":         {hierarchy, func(text string) string { return text + `"","1","LP1","` + loinctest.Term(1) + `","x"` }, "IMMEDIATE_PARENT is not a LOINC code"},
		"cycle": {hierarchy, func(text string) string {
			return text + `"","1","` + loinctest.Term(1) + `","` + loinctest.Class(0) + `","x"`
		}, "form a cycle"},
		"two releases": {"LinguisticVariants.csv", nil, "a folder must contain a single release"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := folderOf(t, loinctest.Release{Terms: 8, Parts: 100})
			var text []byte
			path := filepath.Join(folder, "copy", terms)
			err := filepath.WalkDir(folder, func(file string, _ os.DirEntry, err error) error {
				if filepath.Base(file) == test.file {
					path = file
					text, err = os.ReadFile(file)
				}
				return err
			})
			if test.change == nil {
				test.change, err = func(string) string { return "x" }, os.Mkdir(filepath.Dir(path), 0o700)
			}
			if err == nil {
				err = os.WriteFile(path, []byte(test.change(string(text))), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = definitions.Load(t.Context(), definitions.Options{Definitions: []string{folder}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// BenchmarkExpand searches as a user types, and expands value sets.
func BenchmarkExpand(b *testing.B) {
	archive := filepath.Join(b.TempDir(), "Loinc_2.99.zip")
	if err := (loinctest.Release{Terms: 100_000, Parts: 60_000, Languages: []string{"deDE"}}).WriteZip(archive); err != nil {
		b.Fatal(err)
	}
	h := &api.Handler{Library: libraryOf(b, archive)}
	for name, query := range map[string]string{
		"search": "url=http://loinc.org/vs&filter=meas+emve+os", "german": "url=http://loinc.org/vs&displayLanguage=de&filter=dede+osme",
		"answers": "url=http://loinc.org/vs/" + loinctest.List(7), "group": "url=http://loinc.org/vs/" + loinctest.Group(7), "part": "url=http://loinc.org/vs/" + loinctest.Class(7),
		"search in a part": "filter=meas+em&url=http://loinc.org/vs/" + loinctest.Class(7),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w, _ := terminologytest.Call(b, h, "GET", "/ValueSet/$expand?count=10&"+query, "")
				if !strings.Contains(w.Body.String(), `"contains"`) {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
