package generate

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// Packages downloads packages from registries, each only once.
type Packages struct {
	// Folder is the download folder. Required.
	Folder string
}

// NPM returns a file in an npm package. name has the form name@version.
func (p Packages) NPM(name, file string) ([]byte, error) {
	archive, err := p.archive(name, "npm", "pack", "--silent", name, "--pack-destination")
	if err != nil {
		return nil, err
	}
	return runCommand("tar", "-xOzf", archive, "package/"+file)
}

// NPMJSON decodes a JSON file in an npm package.
func (p Packages) NPMJSON(name, file string, into any) error {
	data, err := p.NPM(name, file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// PyPI returns a file in a wheel from PyPI. name has the form name==version.
func (p Packages) PyPI(name, file string) ([]byte, error) {
	archive, err := p.archive(name, "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", name, "-d")
	if err != nil {
		return nil, err
	}
	return runCommand("unzip", "-p", archive, file)
}

// archive returns the path of a package's archive. On first use, it runs command to download the archive.
func (p Packages) archive(name string, command ...string) (string, error) {
	folder := filepath.Join(p.Folder, regexp.MustCompile(`\W`).ReplaceAllString(name, "-"))
	if os.Mkdir(folder, 0o755) == nil {
		if _, err := runCommand(append(command, folder)...); err != nil {
			return "", err
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("%s: expected exactly one file: %v, %w", name, files, err)
	}
	return files[0], nil
}

func runCommand(command ...string) ([]byte, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", command, err)
	}
	return out, nil
}

// objectPattern matches an object literal in a JavaScript module that contains no nested objects.
var objectPattern = regexp.MustCompile(`(?s)\{[^{}]*\}`)

// memberPattern matches a member of an object: name: 'text', "text" or number.
var memberPattern = regexp.MustCompile(`(\w+): (?:'([^']*)'|"([^"]*)"|(\d+))`)

// Objects returns the objects that have a name in a JavaScript module that exports a list.
func (p Packages) Objects(name, file string) (list []map[string]string, err error) {
	text, err := p.NPM(name, file)
	for _, o := range objectPattern.FindAll(text, -1) {
		members := make(map[string]string)
		for _, m := range memberPattern.FindAllSubmatch(o, -1) {
			members[string(m[1])] = string(m[2]) + string(m[3]) + string(m[4])
		}
		if members["name"] != "" { // other matches are comments or objects without a name
			list = append(list, members)
		}
	}
	return list, err
}

// Languages are the languages of the sign-in page.
var Languages = []string{"en", "de", "fr", "es", "nl"}

// CountryNames returns country names by language and alpha-2 code, with the common name first.
func (p Packages) CountryNames() (map[string]map[string][]string, error) {
	all := make(map[string]map[string][]string)
	for _, language := range Languages {
		var file struct{ Countries map[string]json.RawMessage }
		if err := p.NPMJSON("i18n-iso-countries@7.14.0", "langs/"+language+".json", &file); err != nil {
			return nil, err
		}
		all[language] = make(map[string][]string)
		for code, name := range file.Countries {
			var list []string
			if json.Unmarshal(name, &list) != nil {
				list = []string{""}
				if err := json.Unmarshal(name, &list[0]); err != nil {
					return nil, err
				}
			}
			if language == "nl" { // Dutch lists the common name last
				slices.Reverse(list)
			}
			all[language][code] = list
		}
	}
	return all, nil
}
