package bcp47

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

// wellFormed is the grammar of RFC 5646 §2.1 for tags in the recommended case.
var wellFormed = regexp.MustCompile(`^(?:([a-z]{2,3}(?:-[a-z]{3}){0,3}|[a-z]{4}|[a-z]{5,8})(-[A-Z][a-z]{3})?(-(?:[A-Z]{2}|[0-9]{3}))?` +
	`((?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*)((?:-[0-9a-wyz](?:-[0-9A-Za-z]{2,8})+)*)(-x(?:-[0-9A-Za-z]{1,8})+)?|x(?:-[0-9A-Za-z]{1,8})+)$`)

var singleton = regexp.MustCompile(`-([0-9a-wyz])(?:-[0-9A-Za-z]{2,8})+`)

var (
	entry     = regexp.MustCompile(`(?m)^Type: (.*)\n(?:Subtag|Tag): (.*)$`)
	extending = regexp.MustCompile(`(?m)^Type: extlang\nSubtag: (.*)\n(?:[^%].*\n)*?Prefix: (.*)$`)
)

// entries returns the set of entries in a registry, such as "region CH", and "prefix zh-yue" for extended languages.
func entries(registry string) map[string]bool {
	found := map[string]bool{}
	for _, m := range entry.FindAllStringSubmatch(registry, -1) {
		found[m[1]+" "+m[2]] = true
	}
	for _, m := range extending.FindAllStringSubmatch(registry, -1) {
		found["prefix "+m[2]+"-"+m[1]] = true
	}
	return found
}

// isValid validates a tag with regular expressions, independently of the code under test.
func isValid(registry map[string]bool, tag string) bool {
	is := func(kind, value string) bool { return registry[kind+" "+value] }
	if is("grandfathered", tag) {
		return true
	}
	m := wellFormed.FindStringSubmatch(tag)
	if m == nil || len(tag) > maxTag {
		return false
	}
	if strings.HasPrefix(tag, "x-") {
		return true
	}
	languages := strings.Split(m[1], "-")
	ok := is("language", languages[0]) || languages[0] >= "qaa" && languages[0] <= "qtz" && len(languages[0]) == 3
	if len(languages) > 1 {
		ok = ok && is("prefix", m[1])
	}
	if script := strings.TrimPrefix(m[2], "-"); script != "" {
		ok = ok && (is("script", script) || script >= "Qaaa" && script <= "Qabx")
	}
	if region := strings.TrimPrefix(m[3], "-"); region != "" {
		ok = ok && (is("region", region) || region >= "QM" && region <= "QZ" || region >= "XA" && region <= "XZ")
	}
	seen := map[string]bool{}
	for _, v := range strings.Split(m[4], "-")[1:] {
		ok = ok && is("variant", v) && !seen[v]
		seen[v] = true
	}
	for _, e := range singleton.FindAllStringSubmatch(m[5], -1) {
		ok = ok && !seen[e[1]]
		seen[e[1]] = true
	}
	return ok
}

// TestGenerated checks random tags with mostly valid subtags.
func TestGenerated(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2000
	}
	random := rand.New(rand.NewPCG(5646, 47))
	registry := entries(registryText())
	var pools [][]string
	for _, subtags := range sharedRegistry().subtags {
		var pool []string
		for s := range subtags {
			pool = append(pool, s)
		}
		slices.Sort(pool)
		pools = append(pools, pool)
	}
	pools = append(pools, []string{"u-co", "a-bbb-ccc", "t-en", "0-ab", "u", "b-c"}, []string{"x-a", "x-AZE-b", "x", "x-a-b-c-d"},
		[]string{"", "Latn", "us", "EN", "de_CH", "abcdefghi", "ü", "i", "1a", "12", "abcd1", "1abc", "min", "klingon", "BE", "NL", "GB", "oed"})
	valid := 0
	for range n {
		var parts []string
		for kind, pool := range pools {
			odds := []int{98, 6, 30, 40, 30, 15, 15, 4}[kind]
			for random.IntN(100) < odds && len(parts) < 30 {
				s := pool[random.IntN(len(pool))]
				if kind == int(partExtLang) && random.IntN(2) == 0 {
					parts = []string{sharedRegistry().subtags[partExtLang][s].firstValue("Prefix")}
				}
				if parts = append(parts, s); kind != int(partVariant) && random.IntN(20) > 0 {
					break
				}
			}
		}
		if random.IntN(30) == 0 {
			random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		}
		tag := strings.Join(parts, "-")
		want := isValid(registry, tag)
		c, got := source.System.Locate([]byte(tag))
		if got != want {
			t.Fatalf("%q: valid is %v, want %v: %s", tag, got, want, system{}.InvalidReason([]byte(tag)))
		}
		if got {
			valid++
			checkCanonical(t, c)
		}
	}
	if share := valid * 100 / n; share < 30 || share > 80 {
		t.Errorf("%d %% of the tags are valid: too few of one kind to show something", share)
	}
}

func FuzzLocate(f *testing.F) {
	for _, tag := range []string{"de-CH", "i-default", "zh-min-nan", "en-GB-oed", "sgn-BE-FR", "de-a-bc-x-d", "EN-us-X-AB", "sl-rozaj-biske", "zh-yue", "qaa-Qaaa-QM", "de_CH", "en-\u00fc"} {
		f.Add(tag)
	}
	registry := entries(registryText())
	f.Fuzz(func(t *testing.T, tag string) {
		c, ok := source.System.Locate([]byte(tag))
		if want := isValid(registry, tag); ok != want || ok != (system{}.InvalidReason([]byte(tag)) == "") {
			t.Errorf("%q: valid is %v, want %v", tag, ok, want)
		}
		if !ok {
			return
		}
		if string(c.Code) != tag {
			t.Errorf("%q became %q", tag, c.Code)
		}
		checkCanonical(t, c)
		source.System.AppendTexts(nil, c)
		source.System.AppendValues(nil, c)
	})
}

var tags = []string{"de", "de-CH", "zh-Hant-TW", "sl-IT-rozaj-biske-1994", "en-US-u-co-phonebk-x-private", "i-klingon", "zh-yue-HK", "en-us", "xx", "de-Latn-DE-1996"}

func BenchmarkLocate(b *testing.B) {
	codes := make([][]byte, len(tags))
	for i, tag := range tags {
		codes[i] = []byte(tag)
	}
	for i := 0; b.Loop(); i++ {
		source.System.Locate(codes[i%len(codes)])
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tags/s")
}

func BenchmarkAppendTexts(b *testing.B) {
	var texts []codesystem.Text
	c, _ := source.System.Locate([]byte("zh-Hant-TW"))
	for b.Loop() {
		texts = source.System.AppendTexts(texts[:0], c)
	}
}

// BenchmarkRegistry measures reading the registry, which happens on first use.
func BenchmarkRegistry(b *testing.B) {
	for b.Loop() {
		newRegistry(registryText())
	}
}
