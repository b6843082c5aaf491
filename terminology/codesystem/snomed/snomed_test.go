package snomed

import (
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// synthetic is the edition of most tests.
var synthetic = snomedtest.Edition{Concepts: 1200}

// folderOf writes an edition to a folder.
func folderOf(t testing.TB, e snomedtest.Edition) string {
	t.Helper()
	folder := t.TempDir()
	if err := e.WriteFolder(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// systemOf loads an edition.
func systemOf(t testing.TB, e snomedtest.Edition) *System {
	t.Helper()
	l, err := definitions.Load(t.Context(), definitions.Options{Definitions: []string{folderOf(t, e)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Use(func() {}) }) // keeps the memory of the system
	return l.Systems.CodeSystems[l.Systems.CodeSystem(URL, "")].Concepts.System.(*System)
}

// number returns the number of a synthetic concept.
func (s *System) number(t testing.TB, code string) uint32 {
	t.Helper()
	c, ok := s.Locate([]byte(code))
	if !ok {
		t.Fatalf("no concept %s", code)
	}
	return c.Number
}

func TestLoad(t *testing.T) {
	s := systemOf(t, synthetic)
	if got := s.snapshot.edition.versionURI(); got != "http://snomed.info/sct/900000000000207008/version/20260801" {
		t.Errorf("version %s", got)
	}
	if s.Len() != 1222 {
		t.Errorf("%d concepts", s.Len())
	}
	for concept := range uint32(s.Len()) {
		for _, parent := range s.Parents(concept) {
			if parent >= concept {
				t.Fatalf("parent %d of %d", parent, concept)
			}
		}
	}
	if root := s.number(t, snomedtest.Root); root != 0 || string(s.snapshot.term(root)) != "SNOMED CT Concept" {
		t.Errorf("root %d: %s", root, s.snapshot.term(root))
	}
	below, err := s.Below(0, func(int) error { return nil })
	if err != nil || below.Count() != s.snapshot.active.Count()-1 {
		t.Errorf("%d descendants of the root, %d active concepts: %v", below.Count(), s.snapshot.active.Count(), err)
	}
}

// TestEdition checks the URI of releases with certain files, modules with numbers of concepts, and module dependencies.
func TestEdition(t *testing.T) {
	const us, icd, test = 731000124108, 5991000124107, 31000003106
	day := func(text string) date { d, _ := parseDate([]byte(text)); return d }
	for name, e := range map[string]struct {
		file         string
		concepts     map[sctid]int
		dependencies []dependency
		want         string
	}{
		"international":        {"sct2_Concept_Snapshot_INT_20260801.txt", map[sctid]int{coreModule: 9, 449080006: 2}, []dependency{{coreModule, metadataModule, day("20260801")}}, "sct/900000000000207008/version/20260801"},
		"national":             {"sct2_Concept_Snapshot_US1000124_20260901.txt", map[sctid]int{coreModule: 9, icd: 1, us: 3}, []dependency{{icd, us, day("20260901")}, {us, coreModule, day("20260901")}}, "sct/731000124108/version/20260901"},
		"United Kingdom":       {"sct2_Concept_UKCLSnapshot_GB1000000_20260410.txt", map[sctid]int{coreModule: 9, 999000011000000103: 5, ukEdition: 1}, []dependency{{ukEdition, coreModule, day("20260415")}}, "sct/83821000000107/version/20260415"},
		"extract":              {"sct2_Concept_Snapshot_INT_20260909.txt", map[sctid]int{coreModule: 9, test: 1}, []dependency{{coreModule, metadataModule, day("20260801")}, {test, test, day("20260909")}}, "xsct/31000003106/version/20260909"},
		"without dependencies": {"xsct2_Concept_Snapshot_INT_20260801.txt", map[sctid]int{coreModule: 1}, nil, "sct/900000000000207008/version/20260801"},
		"without a date":       {"sct2_Concept_Snapshot_INT.txt", map[sctid]int{coreModule: 1}, nil, "contains the date"},
	} {
		l := &loader{files: map[fileKind][]string{conceptFile: {"Snapshot/" + e.file}}, dependencies: e.dependencies}
		for module, count := range e.concepts {
			number, _ := l.modules.add(module)
			l.concepts.module = append(l.concepts.module, slices.Repeat([]uint16{number}, count)...)
		}
		got, err := l.edition()
		if err == nil && got.versionURI() != "http://snomed.info/"+e.want || err != nil && !strings.Contains(err.Error(), e.want) {
			t.Errorf("%s: got %s, %v, want %s", name, got.versionURI(), err, e.want)
		}
	}
}

// TestZipEqualsFolder checks that the two forms of a release yield the same concepts.
func TestZipEqualsFolder(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "SnomedCT.zip")
	if err := synthetic.WriteZip(archive); err != nil {
		t.Fatal(err)
	}
	l, err := definitions.Load(t.Context(), definitions.Options{Definitions: []string{archive}})
	if err != nil {
		t.Fatal(err)
	}
	l.Use(func() {
		zipped, folder := l.Systems.CodeSystems[0].Concepts.System.(*System), systemOf(t, synthetic)
		if a, b := zipped.Table.AppendConcepts(nil), folder.Table.AppendConcepts(nil); string(a) != string(b) {
			t.Error("different concepts")
		}
	})
}

// TestSymbolicLink checks that a link to the folder of a release works like the folder, and that a named pipe in it is skipped.
func TestSymbolicLink(t *testing.T) {
	folder, link := folderOf(t, snomedtest.Edition{Concepts: 100}), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"sct2_Concept_Snapshot_INT_20260802.txt", "pipe.json"} {
		if err := exec.CommandContext(t.Context(), "mkfifo", filepath.Join(folder, name)).Run(); err != nil {
			t.Skip(err)
		}
	}
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{link}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := (snomedtest.Edition{Concepts: 200}).WriteFolder(folder); err != nil {
		t.Fatal(err)
	}
	if err := w.Refresh(t.Context()); err != nil || w.Current().Definitions().Counts().Concepts != 222 {
		t.Errorf("got %v, %v", err, w.Current().Definitions().Counts())
	}
}

// TestEmptyFolder checks that the warning about a folder without definitions names archives.
func TestEmptyFolder(t *testing.T) {
	var log strings.Builder
	_, err := definitions.Load(t.Context(), definitions.Options{Definitions: []string{t.TempDir()}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil || !strings.Contains(log.String(), `looked_for=".json .xml .tgz .zip"`) {
		t.Errorf("got %v, %s", err, log.String())
	}
}

// TestWatch checks that a replaced archive is swapped in, and that a defective one changes nothing.
func TestWatch(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "SnomedCT.zip")
	replace := func(e snomedtest.Edition, size int64) {
		next := archive + ".new"
		if err := e.WriteZip(next); err != nil {
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
	replace(snomedtest.Edition{Concepts: 100}, 0)
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{archive}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	replace(snomedtest.Edition{Concepts: 200}, 1000)
	if err := w.Refresh(t.Context()); err == nil || w.Current().Definitions().Counts().Concepts != 122 {
		t.Errorf("a defective archive: %v, %v", err, w.Current().Definitions().Counts())
	}
	replace(snomedtest.Edition{Concepts: 200, WithoutConcepts: true}, 0)
	if err := w.Refresh(t.Context()); err == nil || w.Current().Definitions().Counts().Concepts != 122 {
		t.Errorf("an archive without concepts: %v, %v", err, w.Current().Definitions().Counts())
	}
	replace(snomedtest.Edition{Concepts: 200}, 0)
	if err := w.Refresh(t.Context()); err != nil || w.Current().Definitions().Counts().Concepts != 222 {
		t.Errorf("a new archive: %v, %v", err, w.Current().Definitions().Counts())
	}
}

// TestTexts checks displays and designations in all languages.
func TestTexts(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100, Swedish: true})
	if got := s.snapshot.edition.uri(); got != "http://snomed.info/sct/"+snomedtest.SwedishModule {
		t.Errorf("edition %s", got)
	}
	british := codesystem.ConceptAt(s.number(t, snomedtest.Concept(23)))
	texts := s.AppendTexts(nil, british)
	term := string(s.snapshot.term(british.Number))
	for list, want := range map[string]string{
		"": term, "en": term, "en-US": term, "en-GB": "Colour of " + term, "sv": "Sjukdom " + term, "de": term,
		"en-x-sctlang-90000000-00005090-07": term, "en-x-sctlang-90000000-00005080-04": "Colour of " + term,
		"sv-x-sctlang-46011000-05210-7": "Sjukdom " + term,
	} {
		languages := codesystem.ParseLanguages(list)
		if got := string(languages.DisplayOf(texts)); got != want {
			t.Errorf("language %q: got %q, want %q", list, got, want)
		}
	}
	isFSN := func(x codesystem.Text) bool { return x.Use == fsnUse && string(x.Value) == term+" (finding)" }
	if !slices.ContainsFunc(texts, isFSN) {
		t.Errorf("no fully specified name in %v", texts)
	}
	if got := string(s.Definition(codesystem.ConceptAt(s.number(t, snomedtest.Concept(51))))); !strings.HasPrefix(got, "Definition of ") {
		t.Errorf("definition %q", got)
	}
	former := s.AppendTexts(nil, codesystem.ConceptAt(s.number(t, snomedtest.Concept(37))))
	if slices.ContainsFunc(former, func(x codesystem.Text) bool { return strings.HasPrefix(string(x.Value), "Former ") }) {
		t.Error("an inactive description is a designation")
	}
}

// TestDialectTags checks the tags of synonyms that are preferred in some or all dialects of their language.
func TestDialectTags(t *testing.T) {
	d := descriptions{
		languages: []string{"en", "fr", "sv"},
		dialects:  []dialect{{refset: usEnglish}, {refset: 20581000087109, language: 1}, {refset: 999000123456789, language: 1}, {refset: 46011000052107, language: 2}},
		language:  []uint8{1, 1, 1, 1, 2, 0}, flags: []descriptionFlags{0, 0, 0, 0, 0, isFSN},
		acceptableFrom: []uint32{0, 2, 3, 4, 5, 6, 7},
		acceptability:  []acceptability{1 | isPreferred, 2 | isPreferred, 1 | isPreferred, 2 | isPreferred, 1, 3 | isPreferred, 0 | isPreferred},
	}
	d.nameDialects()
	for row, want := range []string{"fr", "fr-CA", "fr-x-sctlang-99900012-3456789", "fr", "sv", "en"} {
		if got := d.tagOf(uint32(row)); got != want {
			t.Errorf("row %d: got %s, want %s", row, got, want)
		}
	}
}

// TestSharedIndex checks which languages share the search index of requests without a language.
func TestSharedIndex(t *testing.T) {
	english, bilingual := systemOf(t, synthetic), systemOf(t, snomedtest.Edition{Concepts: 100, Swedish: true})
	for list, want := range map[string][2]bool{
		"":                       {true, true},
		"en":                     {true, false},
		"en-US,en;q=0.5":         {true, false},
		"de,en":                  {true, false},
		"en,*;q=0":               {true, false},
		"en-GB":                  {false, false},
		"sv":                     {false, false},
		"de":                     {false, false},
		"en-x-sctlang-123456789": {true, false},
	} {
		for i, s := range []*System{english, bilingual} {
			if got := s.SearchIndex(list) == s.SearchIndex(""); got != want[i] {
				t.Errorf("language %q, edition %d: shared %v", list, i, got)
			}
		}
	}
}

func TestValues(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 100, Identifiers: true})
	values := func(code, property string) (list []string) {
		for _, v := range s.AppendValues(nil, codesystem.ConceptAt(s.number(t, code))) {
			if v.Property.Code == property {
				list = append(list, string(v.Text))
			}
		}
		return list
	}
	inactive := snomedtest.Concept(23)
	for _, test := range []struct{ code, property, want string }{
		{inactive, "inactive", "true"},
		{snomedtest.Concept(22), "inactive", "false"},
		{inactive, "moduleId", "900000000000207008"},
		{inactive, "effectiveTime", "20260801"},
		{inactive, snomedtest.ReplacedBy, snomedtest.Concept(22)},
		{inactive, snomedtest.InactivationRows, "900000000000482003"},
		{snomedtest.Concept(45), snomedtest.Strength, "45"},
		{snomedtest.ClinicalFinding, "sufficientlyDefined", "false"},
		{snomedtest.Concept(7), "equivalentConcept", "7-7"},
		{snomedtest.Concept(17), "equivalentConcept", ""}, // inactive
		{snomedtest.Concept(24), "normalFormTerse", "<<< 2000000006:363698007=2000000006,47429007=2000000006,{363698007=2000000006},{363698007=2000001005,47429007=2000001005}"},
		{snomedtest.ClinicalFinding, "normalForm", "<<< 138875005|SNOMED CT Concept|"},
		{snomedtest.ClinicalFinding, "normalFormTerse", "<<< 138875005"},
	} {
		if got := strings.Join(values(test.code, test.property), " "); got != test.want {
			t.Errorf("%s of %s: got %q, want %q", test.property, test.code, got, test.want)
		}
	}
	if s.snapshot.refset(snomedtest.LOINCScheme) != nil {
		t.Error("an identifier scheme is a reference set")
	}
}

// TestErrors checks that a hostile, foreign or truncated file is rejected with an error that names the file and line.
func TestErrors(t *testing.T) {
	concepts, relationships := "sct2_Concept_Snapshot_INT_20260801.txt", "sct2_Relationship_Snapshot_INT_20260801.txt"
	descriptions, identifiers := "sct2_Description_Snapshot-en_INT_20260801.txt", "sct2_Identifier_Snapshot_INT_20260801.txt"
	first := snomedtest.Concept(0)
	row := "1\t20250101\t1\t900000000000207008\t"
	for name, test := range map[string]struct {
		file   string
		change func(text string) string
		want   string
	}{
		"missing header":    {concepts, func(string) string { return "" }, concepts + " line 1: no header"},
		"missing column":    {concepts, func(text string) string { return strings.Replace(text, "moduleId", "module", 1) }, "line 1: no column moduleId"},
		"UTF-16":            {concepts, func(text string) string { return "\xff\xfe" + strings.Join(strings.Split(text, ""), "\x00") }, concepts + " line 1"},
		"a million columns": {concepts, func(string) string { return "id" + strings.Repeat("\t", 1_000_000) + "\n" }, "more than 64 columns"},
		"too many fields":   {concepts, func(text string) string { return text + "1" + strings.Repeat("\t", 900_000) + "\n" }, "line 32: 6 columns, but the header has 5"},
		"huge line":         {concepts, func(text string) string { return text + strings.Repeat("1", 1<<21) }, "line 32: longer than"},
		"truncated line":    {concepts, func(text string) string { return text[:len(text)-5] }, "line 31: the file ends within this line"},
		"NUL":               {concepts, func(text string) string { return strings.Replace(text, "20250101", "2025\x000101", 1) + "\x00\n" }, "NUL"},
		"invalid UTF-8":     {descriptions, func(text string) string { return strings.Replace(text, "SNOMED CT Concept (", "\xff (", 1) }, "line 2: not UTF-8"},
		"duplicate concept": {concepts, func(text string) string { return text + strings.Split(text, "\n")[30] + "\n" }, "line 32: concept " + snomedtest.Concept(7) + " occurs twice"},
		"no identifier":     {concepts, func(text string) string { return strings.Replace(text, first, "12345x", 1) }, "line 24: id is not an SCTID"},
		"no date":           {concepts, func(text string) string { return strings.Replace(text, "20260801", "20261301", 1) }, "line 2: effectiveTime is not a date"},
		"no status":         {concepts, func(text string) string { return strings.Replace(text, "\t1\t", "\tyes\t", 1) }, "line 2: active is neither"},
		"no concepts":       {concepts, func(text string) string { return text[:strings.Index(text, "\n")+1] }, concepts + ": no root concept"},
		"no root concept":   {concepts, func(text string) string { return strings.Replace(text, "138875005", "138875996", 1) }, "no root concept 138875005"},
		"unknown concept":   {relationships, func(text string) string { return strings.Replace(text, "404684003", "404684999", 1) }, "404684999 is not a concept of this release"},
		"cycle": {relationships, func(text string) string {
			return text + row + "138875005\t" + first + "\t0\t116680003\t900000000000011006\t0\r\n"
		}, "form a cycle"},
		"concept is itself": {relationships, func(text string) string {
			return text + row + first + "\t" + first + "\t0\t116680003\t900000000000011006\t0\r\n"
		}, "form a cycle"},
		"group out of range":  {relationships, func(text string) string { return strings.Replace(text, "\t0\t116680003", "\t65536\t116680003", 1) }, "line 2: relationshipGroup"},
		"type of description": {descriptions, func(text string) string { return strings.Replace(text, "900000000000003001", "900000000000003999", 1) }, "line 2: typeId"},
		"no descriptions":     {descriptions, nil, "no file sct2_Description_Snapshot"},
		"scheme":              {identifiers, func(text string) string { return strings.Replace(text, snomedtest.LOINCScheme, "LOINC", 1) }, identifiers + " line 2: identifierSchemeId is not an SCTID"},
		"no scheme":           {identifiers, func(text string) string { return strings.Replace(text, "identifierSchemeId", "refsetId", 1) }, "line 1: no column identifierSchemeId"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := folderOf(t, snomedtest.Edition{Concepts: 8, Identifiers: test.file == identifiers})
			path := filepath.Join(folder, "SnomedCT_Synthetic", "Snapshot", "Terminology", test.file)
			text, err := os.ReadFile(path)
			if err == nil && test.change == nil {
				err = os.Remove(path)
			} else if err == nil {
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

// TestDamagedFiles checks that a release with damaged bytes is either rejected or readable.
func TestDamagedFiles(t *testing.T) {
	folder := folderOf(t, snomedtest.Edition{Concepts: 24, Swedish: true, Identifiers: true})
	var files []string
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	random, loaded := rand.New(rand.NewPCG(1, 1)), 0
	for range 100 {
		file := files[random.IntN(len(files))]
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		damaged := slices.Clone(text)
		for range 1 + random.IntN(3) {
			damaged[random.IntN(len(damaged))] = "0123456789\t\n #x\x00"[random.IntN(16)]
		}
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := definitions.Load(t.Context(), definitions.Options{Definitions: []string{folder}}); err == nil {
			loaded++
			s := l.Systems.CodeSystems[0].Concepts.System.(*System)
			for concept := range uint32(s.Len()) {
				c := codesystem.ConceptAt(concept)
				s.AppendFormerTexts(s.AppendTexts(nil, c), c)
				s.AppendValues(nil, c)
			}
			for id := range s.snapshot.refsets {
				if m, ok := s.snapshot.conceptMap(URL + "?fhir_cm=" + strconv.Itoa(int(id))); ok {
					_, _ = m.Groups[0].Find("x", true, func(int) error { return nil })
				}
			}
			_, _, _ = s.EvaluateFilter("constraint", "=", `^ * {{ M active = 1 }} OR * {{ D term = "x" }} {{ + HISTORY-MAX }}`, func(int) error { return nil })
			l.Use(func() {})
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if loaded == 0 || loaded == 100 {
		t.Errorf("%d of 100 damaged releases are loaded", loaded)
	}
}
