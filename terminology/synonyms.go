package terminology

import (
	"fmt"
	"os"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/synonyms"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// EnglishSynonyms is the name of the built-in list of [Options.Synonyms].
const EnglishSynonyms = "english"

// loadSynonyms reads lists of synonyms; nil for none.
func loadSynonyms(files []string) (*textindex.Synonyms, error) {
	if len(files) == 0 {
		return nil, nil
	}
	s := new(textindex.Synonyms)
	for _, name := range files {
		if err := readSynonyms(s, name); err != nil {
			return nil, fmt.Errorf("synonyms in %s: %w", name, err)
		}
	}
	return s, nil
}

func readSynonyms(s *textindex.Synonyms, name string) error {
	if name == EnglishSynonyms {
		return s.Read(strings.NewReader(synonyms.English))
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return s.Read(file)
}
