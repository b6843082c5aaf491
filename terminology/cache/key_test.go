package cache

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func keyOf(t *testing.T, s *Scheme, r *http.Request, p Principal, body string) Key {
	t.Helper()
	target, err := s.target(r, p, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", r.URL, err)
	}
	return target.key
}

// keyInput contains all inputs of a key.
type keyInput struct {
	scheme    Scheme
	request   *http.Request
	principal Principal
	body      string
}

func TestSameKey(t *testing.T) {
	base := "http://h/fhir/ValueSet/$expand?url=http://a&filter=x"
	for name, same := range map[string]*http.Request{
		"order":            get("http://h/fhir/ValueSet/$expand?filter=x&url=http://a"),
		"escapes":          get("http://h/fhir/ValueSet/$expand?url=http%3A%2F%2Fa&filter=%78"),
		"empty parts":      get("http://h/fhir/ValueSet/$expand?&url=http://a&&filter=x&"),
		"host in capitals": get("http://H/fhir/ValueSet/$expand?url=http://a&filter=x"),
		"HEAD":             newRequest(http.MethodHead, base),
		"_format":          get(base + "&_format=json"),
		"long _format":     get(base + "&_format=application/fhir%2Bjson"),
		"unescaped plus":   get(base + "&_format=application/fhir+json"),
		"_pretty=false":    get(base + "&_pretty=false"),
		"Accept":           get(base, "Accept: application/fhir+json"),
		"Accept, others":   get(base, "Accept: application/json;q=0.9, application/fhir+xml;q=0.8"),
		"a browser":        get(base, "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
		"any language":     get(base, "Accept-Language: *"),
		"other headers":    get(base, "User-Agent: a", "Origin: https://b", "X-Forwarded-Host: c", "If-None-Match: d", "Accept-Encoding: gzip"),
	} {
		if keyOf(t, plain, same, Principal{}, "") != keyOf(t, plain, get(base), Principal{}, "") {
			t.Errorf("%s: another key", name)
		}
	}
	german := keyOf(t, plain, get(base, "Accept-Language: de-CH, de;q=0.8,en;q=0.5"), Principal{}, "")
	if german != keyOf(t, plain, get(base, "Accept-Language: DE-ch;q=1.0 ,  en;q=0.50,de; q=0.8"), Principal{}, "") {
		t.Error("languages: another key")
	}
	french := base + "&displayLanguage=fr"
	if keyOf(t, plain, get(french, "Accept-Language: de"), Principal{}, "") != keyOf(t, plain, get(french), Principal{}, "") {
		t.Error("displayLanguage: another key")
	}
}

// TestDifferentKeys checks that all keys differ pairwise, including keys with parts that concatenate to the same string.
func TestDifferentKeys(t *testing.T) {
	base := "http://h/fhir/ValueSet/$expand?url=http://a&filter=x"
	inputs := map[string]keyInput{
		"base":                 {request: get(base)},
		"other host":           {request: get("http://i/fhir/ValueSet/$expand?url=http://a&filter=x")},
		"other path":           {request: get("http://h/fhir/ValueSet/1/$expand?url=http://a&filter=x")},
		"escaped slash":        {request: get("http://h/fhir/ValueSet%2F1/$expand?url=http://a&filter=x")},
		"no filter":            {request: get("http://h/fhir/ValueSet/$expand?url=http://a")},
		"empty filter":         {request: get("http://h/fhir/ValueSet/$expand?url=http://a&filter=")},
		"parameter in value":   {request: get("http://h/fhir/ValueSet/$expand?url=http://a%26filter%3Dx")},
		"name and value":       {request: get("http://h/fhir/ValueSet/$expand?url=http://a&filte=rx")},
		"twice":                {request: get(base + "&filter=x")},
		"order of repeated":    {request: get(base + "&property=a&property=b")},
		"other order":          {request: get(base + "&property=b&property=a")},
		"count":                {request: get(base + "&count=20")},
		"count with a zero":    {request: get(base + "&count=020")},
		"XML":                  {request: get(base + "&_format=xml")},
		"pretty":               {request: get(base + "&_pretty=true")},
		"pretty XML":           {request: get(base+"&_pretty=true", "Accept: application/fhir+xml")},
		"R5":                   {request: get(base, "Accept: application/fhir+json; fhirVersion=5.0")},
		"German":               {request: get(base, "Accept-Language: de")},
		"German or English":    {request: get(base, "Accept-Language: de, en")},
		"German only":          {request: get(base, "Accept-Language: de, *;q=0")},
		"displayLanguage":      {request: get(base + "&displayLanguage=de")},
		"POST":                 {request: newRequest(http.MethodPost, base)},
		"POST with body":       {request: newRequest(http.MethodPost, base), body: "{}"},
		"POST of a form":       {request: newRequest(http.MethodPost, base, "Content-Type: application/x-www-form-urlencoded"), body: "{}"},
		"space":                {request: get(base), scheme: Scheme{Namespace: "ab", Epoch: "c"}},
		"space and epoch":      {request: get(base), scheme: Scheme{Namespace: "a", Epoch: "bc"}},
		"epoch":                {request: get(base), scheme: Scheme{Epoch: "a"}},
		"other epoch":          {request: get(base), scheme: Scheme{Epoch: "b"}},
		"only a space":         {request: get(base), scheme: Scheme{Namespace: "a"}},
		"all":                  {request: get(base), scheme: Scheme{VaryBy: VaryByNone}},
		"further header":       {request: get(base, "X-A: 1"), scheme: Scheme{Headers: []string{"X-A"}}},
		"further header twice": {request: get(base, "X-A: 1", "X-A: 1"), scheme: Scheme{Headers: []string{"X-A"}}},
		"other header":         {request: get(base, "X-B: 1"), scheme: Scheme{Headers: []string{"X-A", "X-B"}}},
		"user":                 {request: get(base), principal: Principal{Issuer: "i", User: "a"}},
		"client":               {request: get(base), principal: Principal{Issuer: "i", Client: "a"}},
		"other issuer":         {request: get(base), principal: Principal{Issuer: "ia", User: ""}, scheme: Scheme{Namespace: "x"}},
		"user of other issuer": {request: get(base), principal: Principal{Issuer: "ia", User: "a"}},
		"split otherwise":      {request: get(base), principal: Principal{Issuer: "i", User: "aa"}},
		"patient":              {request: get(base), principal: Principal{Issuer: "i", User: "a", Patient: "1"}},
		"other patient":        {request: get(base), principal: Principal{Issuer: "i", User: "a", Patient: "2"}},
		"user's resource":      {request: get(base), principal: Principal{Issuer: "i", User: "a", FHIRUser: "1"}},
		"credentials":          {request: get(base, "Authorization: Bearer a")},
		"other credentials":    {request: get(base, "Authorization: Bearer b")},
		"cookie":               {request: get(base, "Cookie: Bearer a")},
	}
	seen := map[Key]string{}
	for name, a := range inputs {
		key := keyOf(t, &a.scheme, a.request, a.principal, a.body)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[key] = name
	}
	raws := map[string]string{}
	for name, a := range inputs {
		raw := a.scheme.appendRaw(nil, a.request, a.principal)
		if raw == nil {
			continue
		}
		if other, ok := raws[string(raw)]; ok {
			t.Errorf("%s and %s are one raw request", name, other)
		}
		raws[string(raw)] = name
	}
}

func TestScopes(t *testing.T) {
	alice, bob := Principal{Issuer: "i", User: "alice", Client: "app"}, Principal{Issuer: "i", User: "bob", Client: "app"}
	other, service := Principal{Issuer: "i", User: "alice", Client: "other"}, Principal{Issuer: "i", Client: "app"}
	more := Principal{Issuer: "i", User: "alice", Client: "app", Scope: "user/*.rs"}
	same := func(v VaryBy, p, q Principal) bool {
		s := &Scheme{VaryBy: v}
		return keyOf(t, s, get(expandURL), p, "") == keyOf(t, s, get(expandURL), q, "")
	}
	for name, test := range map[string]struct {
		varyBy VaryBy
		p, q   Principal
		want   bool
	}{
		"two users":                      {VaryByUser, alice, bob, false},
		"a user by two clients":          {VaryByUser, alice, other, false},
		"a user who allowed more":        {VaryByUser, alice, more, false},
		"a client that is allowed more":  {VaryByUser, service, Principal{Issuer: "i", Client: "app", Scope: "system/*.rs"}, false},
		"by client, with more allowed":   {VaryByClient, bob, more, true},
		"a user and a client":            {VaryByUser, alice, service, false},
		"by client, two users":           {VaryByClient, alice, bob, true},
		"by client, two clients":         {VaryByClient, alice, other, false},
		"by client, users and itself":    {VaryByClient, alice, service, true},
		"by client, users without one":   {VaryByClient, Principal{Issuer: "i", User: "alice"}, Principal{Issuer: "i", User: "bob"}, false},
		"by none":                        {VaryByNone, alice, bob, true},
		"by none, anonymous":             {VaryByNone, alice, Principal{}, true},
		"user and anonymous":             {VaryByUser, alice, Principal{}, false},
		"issuer only and anonymous":      {VaryByUser, Principal{Issuer: "i"}, Principal{}, true},
		"users of two issuers":           {VaryByUser, alice, Principal{Issuer: "j", User: "alice", Client: "app"}, false},
		"by client, of two issuers":      {VaryByClient, alice, Principal{Issuer: "j", User: "alice", Client: "app"}, false},
		"by client, a client and a user": {VaryByClient, Principal{Issuer: "i", Client: "x"}, Principal{Issuer: "i", User: "x"}, false},
	} {
		if got := same(test.varyBy, test.p, test.q); got != test.want {
			t.Errorf("%s: shared = %v", name, got)
		}
	}
}

// TestKeyProperties checks random parameters: equivalent notations have the same key, other parameters a different one.
func TestKeyProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"url", "filter", "count", "property", "designation", "a b", "ü", ""}
	values := []string{"", "x", "x&y=z", "http://a|1.0", "%", "+", "ä ö", "020", "20"}
	escape := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			if random.IntN(2) == 0 || strings.IndexByte("&=+%;# \x00", c) >= 0 || c >= 0x80 || c < ' ' {
				fmt.Fprintf(&b, "%%%02x", c)
			} else {
				b.WriteByte(c)
			}
		}
		return b.String()
	}
	write := func(list []parameter) string {
		var pairs []string
		for _, p := range list {
			pairs = append(pairs, escape(p.name)+"="+escape(p.value))
		}
		return strings.Join(pairs, "&")
	}
	meanings := map[Key]string{}
	for range 5000 {
		list := make([]parameter, random.IntN(5))
		for i := range list {
			list[i] = parameter{names[random.IntN(len(names))], values[random.IntN(len(values))]}
		}
		meant := url.Values{}
		for _, p := range list {
			meant[p.name] = append(meant[p.name], p.value)
		}
		var shuffled []parameter // parameters with the same name stay in order
		next := map[string]int{}
		for _, i := range random.Perm(len(list)) {
			name := list[i].name
			shuffled = append(shuffled, parameter{name, meant[name][next[name]]})
			next[name]++
		}
		one, two := get("http://h/p"), get("http://h/p")
		one.URL.RawQuery, two.URL.RawQuery = write(list), write(shuffled)
		key := keyOf(t, plain, one, Principal{}, "")
		if key != keyOf(t, plain, two, Principal{}, "") {
			t.Fatalf("%q and %q have different keys", one.URL.RawQuery, two.URL.RawQuery)
		}
		if meaning, ok := meanings[key]; ok && meaning != fmt.Sprint(len(list), meant.Encode()) {
			t.Fatalf("%q has the key of %q", meant.Encode(), meaning)
		}
		meanings[key] = fmt.Sprint(len(list), meant.Encode())
	}
}

// TestProducersRequest checks that the producer's request contains nothing outside the key.
func TestProducersRequest(t *testing.T) {
	var sent *http.Request
	o := &origin{answer: func(r *http.Request) (*Response, error) {
		sent = r
		return jsonAnswer(200, "<a/>", "Content-Type: application/fhir+xml"), nil
	}}
	r := newRequest(http.MethodHead, expandURL+"&_format=xml", "Accept: text/html", "Accept-Language: DE ; q=1", "X-Forwarded-Host: evil",
		"Origin: https://evil", "Authorization: Bearer a", "Range: bytes=0-1", "Content-Type: text/plain", "If-None-Match: *", "X-Limit: 5", "Accept-Encoding: gzip")
	serve(t, New(Options{}), r, &Call{Scheme: &Scheme{Headers: []string{"X-Limit"}}, Produce: o.produce})
	want := http.Header{"Accept": {"application/fhir+xml"}, "Accept-Language": {"de"}, "Authorization": {"Bearer a"}, "X-Limit": {"5"}}
	if fmt.Sprint(sent.Header) != fmt.Sprint(want) || sent.Method != http.MethodGet {
		t.Errorf("%s %v, want GET %v", sent.Method, sent.Header, want)
	}
}

// TestProducersCookie checks that the producer gets cookies only if they are part of the key, and never gets request IDs.
func TestProducersCookie(t *testing.T) {
	for name, tt := range map[string]struct {
		scheme    Scheme
		principal Principal
		want      bool
	}{
		"anonymous caller":     {Scheme{}, Principal{}, true},
		"of a known user":      {Scheme{}, Principal{Issuer: "i", User: "a"}, false},
		"of a known client":    {Scheme{VaryBy: VaryByClient}, Principal{Issuer: "i", Client: "a"}, false},
		"shared responses":     {Scheme{VaryBy: VaryByNone}, Principal{}, false},
		"by client, anonymous": {Scheme{VaryBy: VaryByClient}, Principal{}, true},
	} {
		call := &Call{Scheme: &tt.scheme, Principal: tt.principal}
		sent := call.request(newRequest(http.MethodGet, expandURL, "Cookie: a=b", "X-Request-Id: 1"), representation{}, nil).Header
		if (sent.Get("Cookie") != "") != tt.want || sent.Get("X-Request-Id") != "" {
			t.Errorf("%s: %v", name, sent)
		}
	}
}
