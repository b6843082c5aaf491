package gatewaytest

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	unslug  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// Anchors are what GitHub makes of a page's headings: in lower case, without
// punctuation, with hyphens for spaces, and numbered where they are there twice.
func Anchors(page string) (names []string) {
	seen := map[string]int{}
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		name := strings.ReplaceAll(unslug.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")
		if n := seen[name]; n > 0 {
			names = append(names, name+"-"+strconv.Itoa(n))
		} else {
			names = append(names, name)
		}
		seen[name]++
	}
	return names
}
