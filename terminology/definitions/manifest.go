package definitions

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// manifestName is the name of a FHIR package's manifest file.
const manifestName = "package.json"

// Maximum size of a manifest in bytes, and maximum number of dependencies. Further ones are ignored.
const maxManifest, maxDependencies = 1 << 20, 200

// manifest is the manifest of a FHIR package (FHIR NPM Package Specification). Malformed members are ignored.
type manifest struct {
	source       string            // file or folder of the package
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Dependencies map[string]string `json:"dependencies"` // version or range by name
}

// readManifest reads the manifest of the package in source, a file or folder.
func (l *resourceLoader) readManifest(source string, src io.Reader) {
	m := manifest{source: source}
	data, err := io.ReadAll(io.LimitReader(src, maxManifest))
	if err != nil {
		return // reading the next resource of the package fails too
	}
	_ = json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &m) // skips members of a wrong type
	l.manifests = append(l.manifests, m)
}

// readFolderManifest reads the manifest in the folder of a file, if the folder is an unpacked package.
func (l *resourceLoader) readFolderManifest(file string) {
	folder := filepath.Dir(file)
	if slices.ContainsFunc(l.manifests, func(m manifest) bool { return m.source == folder }) {
		return
	}
	if f, err := os.Open(filepath.Join(folder, manifestName)); err == nil {
		l.readManifest(folder, f)
		_ = f.Close()
	}
}

// reportMissingPackages logs the dependencies of each package that are not loaded, and adds them to the Set.
func (l *resourceLoader) reportMissingPackages(ctx context.Context) {
	for _, m := range l.manifests {
		var missing []string
		level := slog.LevelInfo
		for _, dependency := range slices.Sorted(maps.Keys(m.Dependencies))[:min(len(m.Dependencies), maxDependencies)] {
			version, name := m.Dependencies[dependency], dependency[strings.LastIndex(dependency, ":")+1:] // without alias@npm:
			if l.hasPackage(name, version) {
				continue
			}
			if !l.options.Core || !strings.HasPrefix(name, "hl7.terminology") { // R4 contains the most used part of it
				level = slog.LevelWarn
			}
			missing = append(missing, name+"#"+version)
		}
		if len(missing) > 0 {
			l.options.Logger.Log(ctx, level, "package dependencies not loaded", slog.String("package", m.Name+"#"+m.Version),
				slog.String("source", m.source), slog.Any("missing", missing))
		}
		AppendUnique(&l.definitions.MissingPackages, missing...)
	}
}

// hasPackage reports whether a package is loaded in a version. R4's own packages are built in. Names without a dot are those of
// JavaScript packages. Any version is accepted for current (or that of a branch, current$branch), dev, latest and "".
func (l *resourceLoader) hasPackage(name, version string) bool {
	if !strings.Contains(name, ".") || strings.HasPrefix(name, "@") || l.options.Core && strings.HasPrefix(name, "hl7.fhir.r4.") {
		return true
	}
	label, _, _ := strings.Cut(version, "$")
	isAny := slices.Contains([]string{"", "current", "dev", "latest"}, label)
	return slices.ContainsFunc(l.manifests, func(m manifest) bool { return m.Name == name && (isAny || MatchesVersion(m.Version, version)) })
}
