// The light or dark theme: the system's, unless the user chose the other one.

const KEY = "coding-gym-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // Storage is disabled: the system's theme.
  }
}

export function currentTheme() {
  return chosen() ?? (system.matches ? "dark" : "light");
}

/** Switches the theme, and keeps it for later visits. */
export function toggleTheme() {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // Storage is disabled: until the page is closed.
  }
  document.documentElement.dataset.theme = theme;
}

if (chosen()) document.documentElement.dataset.theme = chosen();
