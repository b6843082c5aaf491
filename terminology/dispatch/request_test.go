package dispatch

import "testing"

func TestCacheIDIsFound(t *testing.T) {
	for query, want := range map[string]bool{
		"": false, "url=x": false, "cache-id=1": true, "url=x&cache-id=1": true, "url=x&cache%2Did=1": true, "%63ache-id": true,
		"filter=cache-id": false, "cache-ids=1": false, "%zz=1&cache-id=2": true,
	} {
		if got := hasCacheID(query); got != want {
			t.Errorf("%q: %t", query, got)
		}
	}
	for body, want := range map[string]bool{
		`{"parameter":[{"name":"cache-id"}]}`: true, `{"parameter":[{"name":"cache\u002did"}]}`: true, `<name value="cache&#45;id"/>`: true, "url=x&cache%2Did=1": true,
		`{"parameter":[{"name":"url","valueUri":"http://x"}]}`: false,
	} {
		if got := mentionsCacheID([]byte(body)); got != want {
			t.Errorf("%s: %t", body, got)
		}
	}
}
