package ecl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// clinic is a small edition for examples. Concepts are numbered from 100000; the comments name them.
func clinic() *model {
	m := &model{columns: map[int][]string{16: {"mapTarget", "mapPriority"}, 17: {"targetComponentId"}}, alternates: map[string]int{"LAB#1-8": 4}}
	parents := [][]int{
		{},     // 0 root
		{0},    // 1 finding
		{1},    // 2 disorder of lung
		{1},    // 3 edema
		{2, 3}, // 4 edema of lung
		{4},    // 5 acute edema of lung
		{},     // 6 inactive: wet lung
		{0},    // 7 body structure
		{7},    // 8 lung
		{8},    // 9 lobe of lung
		{7},    // 10 heart
		{0},    // 11 attribute
		{11},   // 12 site
		{12},   // 13 direct site
		{11},   // 14 dose
		{0},    // 15 simple reference set
		{0},    // 16 map
		{0},    // 17 SAME AS
		{2},    // 18 disorder of heart and lung
		{},     // 19 active orphan
	}
	for i, list := range parents {
		x := modelConcept{id: firstID + uint64(i), active: i != 6, Metadata: Metadata{coreModule, 900000000000074008, 20200131}}
		for _, parent := range list {
			m.isA = append(m.isA, [2]int{i, parent})
		}
		m.concepts = append(m.concepts, x)
	}
	m.concepts[0].id, m.concepts[17].id = 138875005, sameAs
	m.concepts[5].Metadata = Metadata{otherModule, 900000000000073002, 20260131}
	m.concepts[13].Module = firstID + 11
	m.relations = []modelRelation{
		{4, 12, 8, 1}, {5, 13, 9, 1}, {5, 12, 8, 2}, {18, 12, 8, 1}, {18, 12, 10, 1}, {3, 12, 7, 0}, {3, 12, 10, 0},
	}
	m.values = []modelValue{{4, 14, 1, "#250"}, {5, 14, 1, "#10.5"}, {18, 14, 2, `"PANADOL"`}, {3, 14, 0, "true"}}
	for i, term := range []string{"Root", "Finding", "Disorder of lung", "Oedema", "Lung oedema", "Acute œdème of lung", "Wet lung"} {
		m.describe(i, term, "en", 900000000000013009, Dialect{usEnglish, 900000000000548007})
	}
	m.describe(4, "Edema of lung (disorder)", "en", 900000000000003001, Dialect{gbEnglish, 900000000000549004})
	m.describe(4, "Lungödem", "sv", 900000000000013009)
	m.describe(5, "Old name", "en", 900000000000013009)
	m.descriptions[len(m.descriptions)-1].Active = false
	m.rows = []modelRow{
		{15, 4, true, coreModule, 20200131, nil}, {15, 6, true, coreModule, 20200131, nil}, {15, 10, false, coreModule, 20260131, nil},
		{16, 4, true, coreModule, 20200131, []string{"J81.0", "1"}}, {16, 5, true, coreModule, 20260131, []string{"J81", "2"}},
		{17, 6, true, coreModule, 20200131, []string{"100004"}},
	}
	return m
}

func (m *model) describe(concept int, term, language string, kind uint64, dialects ...Dialect) {
	d := modelDescription{concept: concept}
	d.Description = Description{ID: 7000000 + uint64(len(m.descriptions)), Term: []byte(term), Language: language, Type: kind, Module: coreModule, EffectiveTime: 20200131, Active: true, Dialects: dialects}
	m.descriptions = append(m.descriptions, d)
}

func TestEvaluate(t *testing.T) {
	e := NewEvaluator(newMemoryContent(clinic()), 1<<16)
	for _, test := range []struct{ text, want string }{
		{"100004", "4"},
		{"100006", "6"},
		{"100004 |anything|", "4"},
		{"LAB#1-8", "4"},
		// hierarchy (section 6.1)
		{"< 100002", "4 5 18"},
		{"<< 100002", "2 4 5 18"},
		{"<! 100001", "2 3"},
		{"<<! 100002", "2 4 18"},
		{"> 100005", "0 1 2 3 4"},
		{">> 100005", "0 1 2 3 4 5"},
		{">! 100004", "2 3"},
		{">>! 100004", "2 3 4"},
		{"<< 100006", ""},
		{"< (100002 OR 100008)", "4 5 9 18"},
		{"*", "0 1 2 3 4 5 7 8 9 10 11 12 13 14 15 16 17 18"},
		{"(<< *) MINUS *", ""},
		{"* MINUS >> *", ""},
		{"* MINUS < *", "0"},
		{"* MINUS > *", "5 9 10 13 14 15 16 17 18"},
		// top and bottom (section 6.12)
		{"!!> (100004 OR 100005 OR 100009 OR 100006)", "4 6 9"},
		{"!!< (100004 OR 100002 OR 100009)", "4 9"},
		// members (sections 6.1 and 6.10)
		{"^ 100015", "4 6"},
		{"^ 100010", ""},
		{"^ *", "4 5 6"},
		{"< ^ 100015", "5"},
		{"^R 100004", "15 16"},
		{"^R (100005 OR 100006)", "15 16 17"},
		{`^R 100005 {{ M mapTarget = "J81.0" }}`, ""},
		{"^ [targetComponentId] 900000000000527005", "4"},
		{"^ 100015 {{ M active = 0 }}", "10"},
		{`^ 100015 {{ M active = "*" }}`, "4 6 10"},
		{`^ 100016 {{ M mapTarget = "J81" }}`, "4 5"},
		{`^ 100016 {{ M mapTarget = wild:"J81" }}`, "5"},
		{`^ 100016 {{ M mapTarget = exact:"j81" }}`, ""},
		{`^ 100016 {{ M mapPriority < #2, mapTarget = wild:"j*" }}`, "4"},
		{`^ 100016 {{ M mapPriority != #2 }}`, "4"},
		{`^ 100016 {{ M effectiveTime > "20210101" }}`, "5"},
		{"^ (100015 OR 100016) {{ M mapPriority = #2 }}", "5"},
		{`^ 100016 {{ M mapPriority < "20200101" }}`, "4 5"},
		{`^ 100016 {{ M mapTarget < "20200101" }}`, ""},
		{"^ 100016 {{ M mapPriority = true }}", "4"},
		{"^ 100016 {{ M referencedComponentId = << 100005 }}", "5"},
		{"^ 900000000000527005 {{ M targetComponentId = << 100002 }}", "6"},
		// combinations (sections 6.4 and 6.5)
		{"< 100002 AND < 100003", "4 5"},
		{"100002 OR 100003 OR 100004", "2 3 4"},
		{"< 100001 MINUS << 100003", "2 18"},
		// refinements (section 6.2)
		{"< 100001 : 100012 = 100008", "4 5 18"},
		{"< 100001 : 100012 = << 100007", "3 4 5 18"},
		{"< 100001 : << 100012 = 100009", "5"},
		{"* : 100012 = *", "3 4 5 18"},
		{"* : * = 100010", "3 18"},
		{"* : (100012 |a (|) = 100010", "3 18"},
		{`* : (100012 /* ( */ OR LAB#"1-8") = 100010`, "3 18"},
		{`* : (100014 = ("(" "PANADOL"))`, "18"},
		{"* : (100012 OR 100013 |)|) = 100010", "3 18"},
		{"* : (100012 = 100010)", "3 18"},
		{"* : (100013) {{ C active = 1 }} = 100009", "5"},
		{"* : (100013) NOT = 100008", "5"},
		{"* : 100012 != 100008", "3 18"},
		{"* : 100012 = 100008, 100012 = 100010", "18"},
		{"* : { 100012 = 100008, << 100012 = 100009 }", ""},
		{"* : { 100012 = 100008 } AND { 100013 = 100009 }", "5"},
		{"* : { 100012 = 100007, 100012 = 100010 }", ""},
		{"* : 100013 = * OR 100012 = 100010", "3 5 18"},
		{"< 100007 : R 100012 = < 100002", "8 10"},
		{"< 100002 . 100012", "8 10"},
		{"100005 . * . * ", ""},
		{"* : 100014 >= #250", "4"},
		{"* : 100014 < #250.0", "5"},
		{`* : 100014 = "PANADOL"`, "18"},
		{`* : 100014 = "panadol"`, ""},
		{`* : 100014 != ("x" "y")`, "18"},
		{"* : 100014 = TRUE", "3"},
		{"* : { 100014 = #10.5, 100013 = * }", "5"},
		{"* : { 100014 = \"PANADOL\", 100012 = * }", ""},
		// cardinality (section 6.3)
		{"* : [2..*] 100012 = *", "3 18"},
		{"* : [1..1] 100012 = 100008", "4 5 18"},
		{"< 100001 : [0..0] 100012 = 100008", "2 3"},
		{"< 100001 : [0..0] 100012 != 100008", "2 4 5"},
		{"* : { [2..2] 100012 = * }", "18"},
		{"* : [2..2] { * = * }", "3 5"},
		{"< 100001 : [0..0] { 100012 = * }", "2"},
		{"* : [3..3] R 100012 = *", "8"},
		{"100006 : [0..0] 100012 = *", ""},
		// filters (sections 6.8 and 6.9)
		{`< 100001 {{ term = "lung oed" }}`, "4"},
		{`< 100001 {{ term = "OED lung" }}`, "4"},
		{`< 100001 {{ term = "oe", term = "acute" }}`, ""},
		{`< 100001 {{ term = "ode" }}`, ""},
		{`< 100001 {{ term = "lungo" }}`, "4"},
		{`< 100001 {{ term = "lungö" }}`, "4"},
		{`< 100001 {{ term = "lüng" }}`, ""},
		{`< 100001 {{ term = ("disorder" "acute") }}`, "2 4 5"},
		{`< 100001 {{ term = wild:"*of lung" }}`, "2 5"},
		{`< 100001 {{ term = (match:"acute" wild:"o*a") }}`, "3 5"},
		{`< 100001 {{ term = wild:"oedema" }}`, "3"},
		{`< 100001 {{ term = exact:"Oedema" }}`, "3"},
		{`< 100001 {{ term = "lung", language = sv }}`, "4"},
		{`< 100001 {{ term = "lung" }} {{ language = sv }}`, "4"},
		{`< 100001 {{ type = fsn, language = sv }}`, ""},
		{`< 100001 {{ dialect = en-gb }}`, "4"},
		{`< 100001 {{ dialect = en-gb (prefer) }}`, ""},
		{`< 100001 {{ dialect = (en-gb (accept) en-us (accept)) }}`, "4"},
		{`<< 100004 {{ dialect != en-us }}`, "4"},
		{`< 100001 {{ D active = 0 }}`, "5"},
		{`< 100001 {{ D active = 0, term = "old" }}`, "5"},
		{`< 100001 {{ D id = 7000007 }}`, "4"},
		{`* {{ D id = 7000006 }}`, ""},
		{"< 100001 {{ C definitionStatus = defined }}", "5"},
		{"< 100001 {{ C moduleId != 900000000000207008 }}", "5"},
		{`< 100001 {{ C effectiveTime = ("20260131" "") }}`, "5"},
		{"< 100001 {{ C moduleId = (900000000000207008 |core| 731000124108) }}", "2 3 4 5 18"},
		{"< 100001 {{ C moduleId = (900000000000207008 OR 100001) }}", "2 3 4 18"},
		{"< 100001 {{ C moduleId != * }}", ""},
		{"* {{ C moduleId = << 100011 }}", "13"},
		{"< 100001 {{ D typeId = >> 100001 }}", ""},
		{"< 100001 {{ D dialectId = (900000000000508004 |GB| (accept) 100001) }}", "4"},
		{"< 100001 {{ D dialectId = 900000000000508004 (900000000000549004 |acceptable|) }}", "4"},
		{"< 100001 {{ D dialectId = (100001 OR 100002) }}", ""},
		{"< 100001 {{Dlanguage=sv}}", "4"},
		{"< 100001 {{CdefinitionStatus=defined}}", "5"},
		{"* {{ C active = 0 }}", "6"},
		{"(* {{ C active = * }}) MINUS *", "6 19"},
		{"^ 100015 {{ C active = true }}", "4"},
		// history (section 6.11)
		{"<< 100002 {{ + HISTORY-MIN }}", "2 4 5 6 18"},
		{"<< 100002 {{ + HISTORY }}", "2 4 5 6 18"},
		{"<< 100002 {{ + HISTORY (100015) }}", "2 4 5 18"},
		{"100004 {{ C moduleId = 731000124108 }} {{ + HISTORY-MOD }}", ""},
	} {
		x, err := Parse(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		s, err := e.Evaluate(x, nil)
		var got []string
		if err == nil {
			s.Each(func(c uint32) { got = append(got, fmt.Sprint(c)) })
		}
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %v, want %s, %v", test.text, got, test.want, err)
		}
	}
}

func TestEvaluateErrors(t *testing.T) {
	e := NewEvaluator(newMemoryContent(clinic()), 1<<16)
	for _, test := range []struct{ text, want string }{
		{"< 99999999", "invalid expression: concept 99999999 is not part of the edition"},
		{"100001 OR 99999999", "invalid expression: concept 99999999 is not part of the edition"},
		{"LAB#1-9", "invalid expression: alternate identifier LAB#1-9 is not part of the edition"},
		{"^ [other] 100016", "invalid expression: the reference sets have no column other"},
		{"^ 100016 {{ M other = #1 }}", "invalid expression: the reference sets have no column other"},
		{"^ [referencedComponentId, mapTarget] 100016", "invalid expression: a value set has concepts, not rows: select one column of the reference sets"},
		{"^ [*] 100016", "invalid expression: a value set has concepts, not rows: select one column of the reference sets"},
	} {
		x, err := Parse(test.text)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := e.Evaluate(x, nil); !errors.Is(err, ErrInvalid) || err.Error() != test.want || s != nil {
			t.Errorf("%s: got %v", test.text, err)
		}
	}
}

func TestEvaluationBudget(t *testing.T) {
	errTooCostly := errors.New("too costly")
	e := NewEvaluator(newMemoryContent(clinic()), 1<<16)
	for _, text := range []string{"< *", "* : * = *", "* : {* = *}", "* {{ term = \"a\" }}", "^ * {{ M active = * }}", "* . *", "100004 {{ + HISTORY }}"} {
		x, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		if _, err := e.Evaluate(x, func(n int) error { steps += n; return nil }); err != nil || steps == 0 {
			t.Errorf("%s: %d steps, %v", text, steps, err)
		}
		fresh := NewEvaluator(newMemoryContent(clinic()), 1<<16)
		for limit := range steps {
			left := limit
			_, err := fresh.Evaluate(x, func(n int) error {
				if left -= n; left < 0 {
					return errTooCostly
				}
				return nil
			})
			if err != nil && !errors.Is(err, errTooCostly) || limit == 0 && err == nil {
				t.Fatalf("%s: limit %d of %d: %v", text, limit, steps, err)
			}
		}
	}
}

func TestCacheEntries(t *testing.T) {
	r := cachedResult{"a", bitset.New(64)}
	c := resultCache{capacity: r.bytes()}
	for range 2 {
		c.add(r.text, r.set)
		if c.get("a") == nil || c.size != r.bytes() {
			t.Fatalf("size %d, want %d", c.size, r.bytes())
		}
	}
	c.add("b", bitset.New(128))
	if c.get("b") != nil || c.get("a") == nil {
		t.Error("a result that exceeds the capacity was added or evicted another one")
	}
}

func TestCacheIsBounded(t *testing.T) {
	e := NewEvaluator(newMemoryContent(clinic()), 2000)
	for i := range 100 {
		x, err := Parse(fmt.Sprintf("<< 100001 : [0..%d] * = *", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Evaluate(x, nil); err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, element := range e.cache.entries {
			size += element.Value.(*cachedResult).bytes()
		}
		if e.cache.size != size || size > 2000 || len(e.cache.entries) != e.cache.recent.Len() || len(e.cache.entries) == 0 {
			t.Fatalf("size %d, counted %d, %d entries", e.cache.size, size, len(e.cache.entries))
		}
	}
	if e.cache.get("<< 100001") == nil {
		t.Error("a subexpression that was used last was evicted")
	}
}

// TestCostOfConditions evaluates expressions with many conditions per component: the cost grows with their number.
func TestCostOfConditions(t *testing.T) {
	cost := func(text string) (steps int) {
		x, err := Parse(text)
		if err == nil {
			_, err = NewEvaluator(newMemoryContent(clinic()), 0).Evaluate(x, func(n int) error { steps += n; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	for _, test := range []struct{ name, prefix, condition, suffix string }{
		{"words", `* {{ term = "`, "lung ", `" }}`},
		{"terms", "* {{ term = (", `wild:"*a*b*" `, ") }}"},
		{"languages", "* {{ language != (", "en ", ") }}"},
		{"dates", "* {{ C effectiveTime = (", `"20260101" `, ") }}"},
		{"concept criteria", "* {{ C active = 1", ", active = 1", " }}"},
		{"description criteria", "* {{ language = en", ", language = en", " }}"},
		{"member criteria", "^ 100016 {{ M mapPriority = #1", ", mapPriority = #1", " }}"},
		{"rows", "^ 100016 {{ M mapTarget = (", `"J" `, ") }}"},
		{"group", "* : { 100012 = *", " OR 100012 = 100009", " }"},
		{"reverse", "* : { 100012 = *", " OR R 100012 = 100009", " }"},
		{"concrete values", "* : 100014 = #1", " OR 100014 = #2", ""},
	} {
		few, many := cost(test.prefix+strings.Repeat(test.condition, 10)+test.suffix), cost(test.prefix+strings.Repeat(test.condition, 1000)+test.suffix)
		if many < 10*few {
			t.Errorf("%s: %d steps for 10 conditions, %d for 1,000", test.name, few, many)
		}
	}
}
