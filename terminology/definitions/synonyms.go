package definitions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/synonyms"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// EnglishSynonyms is the name of the built-in list of [Options.Synonyms].
const EnglishSynonyms = "english"

// loadSynonyms reads lists of synonyms and concept maps; nil for none. Concept maps that are named by their canonical
// must have been loaded.
func (l *resourceLoader) loadSynonyms(ctx context.Context) error {
	if len(l.options.Synonyms) == 0 {
		return nil
	}
	l.library.synonyms = new(textindex.Synonyms)
	for _, name := range l.options.Synonyms {
		if err := l.readSynonyms(ctx, name); err != nil {
			return fmt.Errorf("synonyms in %s: %w", name, err)
		}
	}
	return nil
}

func (l *resourceLoader) readSynonyms(ctx context.Context, name string) error {
	switch extension := filepath.Ext(name); {
	case name == EnglishSynonyms:
		return l.library.synonyms.Read(strings.NewReader(synonyms.English))
	case strings.Contains(name, "://"), strings.HasPrefix(name, "urn:"):
		return l.mapSynonyms(ctx, name)
	case extension == ".json", extension == ".xml":
		return l.mapSynonymsIn(ctx, name)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return l.library.synonyms.Read(file)
}
