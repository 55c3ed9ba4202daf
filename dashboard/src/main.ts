import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { saved } from "./lib/saved";

const target = document.getElementById("page")!;
if (saved) void import("./learn/SavedFile.svelte").then(({ default: SavedFile }) => mount(SavedFile, { target }));
else mount(App, { target });
