package definitions

import (
	"strings"
	"testing"
)

func TestCompareVersions(t *testing.T) {
	ascending := []string{"beta", "0.9", "1", "1.0.0-ballot", "1.0.0", "1.0.1", "1.2", "1.10", "2.0.0-1", "2.0.0", "20180101", "20190101"}
	for i, a := range ascending {
		for j, b := range ascending {
			got := CompareVersions(a, b)
			if got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("compareVersions(%q, %q) = %d", a, b, got)
			}
		}
	}
	if CompareVersions("2019-02-01", "2018-12-31") <= 0 || CompareVersions("2018-08-12", "2018-08") <= 0 {
		t.Error("dates are not in order")
	}
}

// TestLongPatterns checks that comparing a version with a client's long pattern doesn't examine or allocate more than comparing
// it with a short one.
func TestLongPatterns(t *testing.T) {
	pattern := strings.Repeat("x.", 10_000)
	made := testing.AllocsPerRun(10, func() {
		if MatchesVersion("1.2.3", "1.2.7."+pattern) || !MatchesVersion("1.2.3", "1.2.3."+pattern) {
			t.Error("wrong")
		}
	})
	if made > 4 {
		t.Errorf("%v allocations", made)
	}
}
